# attack: Get hold of others by handles on processes: signals, files, memory, namespaces
# expect: refused
# plain: escapes
victim = TARGET["victim"]


def handle():
    return call((434, 434), victim, 0)


def with_handle(numbers, *rest):
    return call(numbers, handle(), *rest)


attempt("a signal", with_handle, (424, 424), signal.SIGCONT, None, 0)
attempt("a file", with_handle, (438, 438), 0, 0)
attempt("its memory", with_handle, (448, 448), 0)
attempt("its namespaces", with_handle, (308, 268), 0x20000000)
attempt("advice on its memory", with_handle, (440, 440), None, 0, 21, 0)
attempt("a queued signal", call, (129, 138), victim, signal.SIGCONT, ctypes.create_string_buffer(128))
