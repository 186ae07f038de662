# attack: Memory behind descriptors, where no process seems to hold it
# expect: memory
# needs: groups
for number in range(100):
    handle = os.memfd_create("hidden")
    for _ in range(15):
        os.write(handle, bytes(1 << 20))
time.sleep(1)
print("ESCAPED", flush=True)
