# attack: One file larger than the disk of the tier
# expect: disk
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    with open("large", "wb") as file:
        while True:
            file.write(bytes(1 << 20))
            file.flush()
except OSError as error:
    print("stopped:", error, flush=True)
    time.sleep(0.3)
    sys.exit(1)
