# attack: Use up message queues, semaphores and timers that are counted for all of a user's processes
# expect: refused
libc = ctypes.CDLL(None, use_errno=True)


def queue():
    answer = libc.mq_open(b"/slackwater", os.O_CREAT | os.O_RDWR, 0o600, None)
    if answer < 0:
        raise OSError(ctypes.get_errno(), "no queue")
    return answer


def timers():
    for count in range(5_000):
        made = ctypes.c_int()
        if libc.timer_create(1, None, ctypes.byref(made)):
            raise OSError(ctypes.get_errno(), f"after {count}")
    return "five thousand"


attempt("a queue", queue)
attempt("timers", timers)
