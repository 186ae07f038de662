# attack: Change limits, priority and placement of other processes; raise one's own
# expect: refused
# plain: escapes
import resource

victim = TARGET["victim"]
attempt("the victim's limit", resource.prlimit, victim, resource.RLIMIT_NOFILE, (64, 64))
attempt("the victim's priority", os.setpriority, os.PRIO_PROCESS, victim, 19)
attempt("the victim's processors", os.sched_setaffinity, victim, {0})
attempt("a real-time class", os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50))
attempt("one's own priority", os.setpriority, os.PRIO_PROCESS, 0, -10)


def raise_own():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard * 2))


attempt("one's own limit", raise_own)
