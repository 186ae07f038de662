# attack: Take over other processes with the debugger's calls
# expect: refused
# plain: escapes
victim = TARGET["victim"]
attempt("attach", call, (101, 117), 0x4206, victim, 0, 0)
attempt("read memory", call, (310, 270), victim, ctypes.byref(ctypes.create_string_buffer(64)), 1, None, 0, 0)
attempt("compare", call, (312, 272), os.getpid(), victim, 0, 0, 0)
attempt("steal a descriptor", lambda: call((438, 438), os.pidfd_open(victim), 0, 0))
