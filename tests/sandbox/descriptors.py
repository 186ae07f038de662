# attack: Write where one was given nothing to write: descriptors of the keeper, of the agent, of process 1
# expect: refused
# plain: escapes
def foreign():
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in {os.getpid(), 1}:
            try:
                for fd in os.listdir(f"/proc/{name}/fd"):
                    found.append(os.readlink(f"/proc/{name}/fd/{fd}"))
            except OSError:
                continue
    if not found:
        raise OSError("none can be seen")
    return found


def extra():
    open_ones = [fd for fd in range(3, 64) if os.path.exists(f"/dev/fd/{fd}") and exists(fd)]
    if not open_ones:
        raise OSError("none was inherited")
    return open_ones


def exists(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


attempt("those of others", foreign)
attempt("inherited ones", extra)
attempt("the worker's memory", lambda: open(f"/proc/{TARGET['worker']}/mem", "r+b"))
