# attack: Use up the machine's contexts for asynchronous input and output
# expect: refused
# plain: escapes
context = ctypes.c_ulong(0)
attempt("all contexts", call, (206, 0), 60000, ctypes.byref(context))
context = ctypes.c_ulong(0)
attempt("one context", call, (206, 0), 1, ctypes.byref(context))
attempt("submit to one", call, (209, 2), context, 0, None)
