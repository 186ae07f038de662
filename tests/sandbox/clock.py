# attack: Set the clock
# expect: refused
attempt("set", time.clock_settime, time.CLOCK_REALTIME, time.time() + 1)
attempt("set the day", call, (164, 170), ctypes.byref((ctypes.c_long * 2)(int(time.time()) + 1, 0)), None)
attempt("slew", call, (159, 171), ctypes.byref((ctypes.c_uint * 64)(0x0002)))
