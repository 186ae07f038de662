# attack: One process takes 4 GiB of memory
# expect: memory
taken = []
for _ in range(256):
    taken.append(bytearray(os.urandom(4096) * 4096))
print("ESCAPED with", len(taken) * 16, "MiB", flush=True)
