# attack: Read secrets of the worker, of other tenants and of the system
# expect: refused
# plain: escapes
import hashlib


def read(path):
    content = open(path, "rb").read(1 << 20)
    if not content:
        raise OSError("it is empty here")
    return content[:64]


def users():
    """A container has users of its own, and a file that says so: it tells nothing of the node's."""
    if hashlib.sha256(open("/etc/passwd", "rb").read()).hexdigest() != TARGET["users"]:
        raise OSError("they are not this node's")
    return read("/etc/passwd")


def homes():
    found = os.listdir("/home/.")
    if not found:
        raise OSError("there are none")
    return found


attempt("a file anybody on the node may read", read, TARGET["secret"])
attempt("the folder of the secret", os.listdir, os.path.dirname(TARGET["secret"]))
attempt("the password file", read, "/etc/shadow")
attempt("the host's users", users)
attempt("the home of root", os.listdir, "/root")
attempt("all homes", homes)
attempt("other scripts' folders", os.listdir, TARGET["slots"])
attempt("the worker's code", os.listdir, TARGET["code"])
attempt("the kernel's memory", read, "/proc/kcore")
attempt("the root of process 1", os.listdir, "/proc/1/root/root")
