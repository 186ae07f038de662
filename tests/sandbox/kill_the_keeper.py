# attack: Kill whoever started the script, to be free of its limits
# expect: refused
def kill_parent():
    parent = os.getppid()
    if parent == 0:
        raise OSError("it has no parent it could name")
    os.kill(parent, signal.SIGKILL)
    time.sleep(0.2)
    if os.getppid() == parent:
        raise OSError("the parent lives")


attempt("the parent", kill_parent)
