# attack: Mount, unmount and change the root to get at the node's files
# expect: refused
def mount(source, target, kind, flags):
    if LIBC.mount(source, target, kind, flags, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


attempt("bind the root", mount, b"/", b"/mnt", None, 4096)
attempt("a new proc", mount, b"proc", os.getcwd().encode(), b"proc", 0)
attempt("make the system writable", mount, b"/usr", b"/usr", None, 32 | 4096)
attempt("the new interface", call, (430, 430), b"tmpfs", 0)
attempt("open a tree", call, (428, 428), -100, b"/", 1)
attempt("pivot", call, (155, 41), b".", b".")
attempt("chroot", os.chroot, ".")
attempt("unmount", call, (166, 39), os.getcwd().encode(), 2)
attempt("a file by its handle", call, (304, 265), -100, ctypes.create_string_buffer(128), 0)
