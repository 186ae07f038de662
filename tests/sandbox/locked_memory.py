# attack: Lock memory that cannot be swapped, and take the machine's huge pages
# expect: refused
# plain: escapes
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def mapped(flags, size):
    where = LIBC.mmap(None, size, 3, 0x22 | flags, -1, 0)
    if where in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "no memory")
    return where


def locked():
    where = mapped(0, 8 << 20)
    if LIBC.mlock(ctypes.c_void_p(where), ctypes.c_size_t(8 << 20)):
        raise OSError(ctypes.get_errno(), "cannot be locked")
    return "eight megabytes"


attempt("locked", locked)
attempt("locked as it is mapped", mapped, 0x2000, 8 << 20)
