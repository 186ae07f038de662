# attack: Kill the worker, the agent and other tenants' processes
# expect: refused
# plain: escapes
attempt("kill the victim", os.kill, TARGET["victim"], signal.SIGKILL)
attempt("stop the worker", os.kill, TARGET["worker"], 0)
attempt("signal the victim's group", os.killpg, TARGET["victim"], signal.SIGTERM)
attempt("a handle on the victim", lambda: signal.pidfd_send_signal(os.pidfd_open(TARGET["victim"]), signal.SIGKILL))
try:
    os.kill(-1, signal.SIGCONT)
except OSError:
    pass
