# attack: Queue signals until nobody of this user can
# expect: refused
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})


def queue():
    LIBC.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    for count in range(20_000):
        if LIBC.sigqueue(os.getpid(), signal.SIGRTMIN, None):
            raise OSError(ctypes.get_errno(), f"after {count}")
    return "twenty thousand"


attempt("queue", queue)
