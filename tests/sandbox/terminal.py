# attack: Type into the terminal of whoever started the worker
# expect: refused
import fcntl
import pty
import termios

attempt("the controlling terminal", os.open, "/dev/tty", os.O_RDWR)
for number in (0, 1, 2):
    attempt(f"type into {number}", fcntl.ioctl, number, termios.TIOCSTI, b"x")
