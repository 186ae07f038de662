# attack: Many processes take memory, each a little
# expect: memory
for number in range(12):
    if os.fork() == 0:
        part = bytearray(os.urandom(4096) * 4096 * 2)
        time.sleep(60)
time.sleep(8)
print("ESCAPED", flush=True)
