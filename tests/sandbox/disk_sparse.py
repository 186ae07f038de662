# attack: Make files that seem small and are not: holes, reserved space, copies without bytes
# expect: refused
def reserved():
    handle = os.open("reserved", os.O_CREAT | os.O_RDWR, 0o600)
    os.posix_fallocate(handle, 0, 1 << 34)
    return "sixteen gigabytes"


def hole():
    handle = os.open("hole", os.O_CREAT | os.O_RDWR, 0o600)
    os.truncate(handle, 1 << 40)
    return "a terabyte"


signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
attempt("reserved space", reserved)
attempt("a hole", hole)
