# attack: Collect orphans as their new parent, and leave them behind in sessions of their own
# expect: refused
call((157, 167), 36, 1, 0, 0, 0)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setpgid(0, 0)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            os.execv("/bin/sleep", ["sleep", TARGET["mark"]])
        os._exit(0)
time.sleep(0.2)
print("refused: whether they live is looked at from outside", flush=True)
