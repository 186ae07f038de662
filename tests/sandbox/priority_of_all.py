# attack: Slow every process of one's user and of one's group down, by naming oneself as "all that is mine"
# expect: refused
victim = TARGET["victim"]


def slowed(which, who):
    os.setpriority(which, who, 19)
    return os.getpriority(os.PRIO_PROCESS, victim) == 19 or nobody("the victim is as it was")


def nobody(why):
    raise OSError(why)


def io_class(which, who):
    call((251, 30), which, who, 3 << 13)
    return call((252, 31), 1, victim) == 3 << 13 or nobody("the victim is as it was")


attempt("the user, as zero", slowed, os.PRIO_USER, 0)
attempt("the user, by number", slowed, os.PRIO_USER, os.getuid())
attempt("the victim's group", slowed, os.PRIO_PGRP, victim)
attempt("its disk class, by user", io_class, 3, 0)
attempt("its disk class, by user's number", io_class, 3, os.getuid())
attempt("its disk class, by group", io_class, 2, victim)
