# attack: Device files: the disk, memory, the kernel's log, the console
# expect: refused
import stat


def make():
    os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(254, 0))
    return open("disk", "rb").read(1)


attempt("make a disk", make)
for path in ("/dev/vda", "/dev/sda", "/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/vsock", "/dev/tty0"):
    attempt(path, lambda path=path: os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 1))
attempt("the kernel's log", call, (103, 116), 3, ctypes.create_string_buffer(64), 64)
