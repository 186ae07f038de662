# attack: The same calls by the numbers of another architecture, to pass by the filter
# expect: refused
import mmap
import subprocess


def child(action):
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except OSError:
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        raise OSError(f"ended with {status}")


def by_x32():
    # keyctl(get the user's keyring) by its x32 number
    if os.uname().machine != "x86_64":
        raise OSError("not here")
    call((0x40000000 + 250, 0), 0, -4, 1)


def by_i386():
    # int 0x80: the 32-bit table, where 20 is getpid and on the 64-bit one writev
    if os.uname().machine != "x86_64":
        raise OSError("not here")
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()


attempt("x32", child, by_x32)
attempt("i386", child, by_i386)
