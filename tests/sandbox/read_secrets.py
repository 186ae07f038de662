# attack: Read secrets of the worker, of other tenants and of the system
# expect: refused
# plain: escapes
def read(path):
    return open(path, "rb").read(64)


attempt("a file anybody on the node may read", read, TARGET["secret"])
attempt("the folder of the secret", os.listdir, os.path.dirname(TARGET["secret"]))
attempt("the password file", read, "/etc/shadow")
attempt("the host's users", read, "/etc/passwd")
attempt("the home of root", os.listdir, "/root")
attempt("all homes", os.listdir, "/home/.")
attempt("other scripts' folders", os.listdir, TARGET["slots"])
attempt("the worker's code", os.listdir, TARGET["code"])
attempt("the kernel's memory", read, "/proc/kcore")
attempt("the root of process 1", os.listdir, "/proc/1/root/root")
