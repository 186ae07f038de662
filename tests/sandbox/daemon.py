# attack: A daemon that outlives its script: forked twice, in a session of its own, without output
# expect: refused
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for handle in (0, 1, 2):
            os.close(handle)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os.execv("/bin/sleep", ["sleep", TARGET["mark"]])
    os._exit(0)
time.sleep(0.2)
print("refused: whether it lives is looked at from outside", flush=True)
