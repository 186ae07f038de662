# attack: Join the group or session of others, take their terminal, stop them as a group
# expect: refused
victim = TARGET["victim"]
attempt("the victim's group", os.setpgid, 0, victim)
attempt("move the victim", os.setpgid, victim, os.getpgrp())
attempt("stop its group", os.killpg, victim, signal.SIGSTOP)
attempt("the terminal", os.open, "/dev/tty", os.O_RDWR)
attempt("foreground", lambda: os.tcsetpgrp(0, os.getpgrp()))
