# attack: Stops itself and its children, so that they cannot be asked to end
# expect: cap
for _ in range(5):
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(60)
