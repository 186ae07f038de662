# attack: Have the kernel send signals to others: as the owner of a pipe that becomes readable
# expect: refused
# plain: escapes
import fcntl

victim = TARGET["victim"]


def killed_by_a_pipe():
    reader, writer = os.pipe()
    fcntl.fcntl(reader, 10, signal.SIGKILL)  # F_SETSIG
    fcntl.fcntl(reader, fcntl.F_SETOWN, victim)
    fcntl.fcntl(reader, fcntl.F_SETFL, fcntl.fcntl(reader, fcntl.F_GETFL) | os.O_ASYNC)
    os.write(writer, b"x")
    time.sleep(0.2)
    os.kill(victim, 0)
    return "it may be signalled"


attempt("the victim, whose life is looked at from outside", killed_by_a_pipe)
