# attack: Find passwords in the environment and the command lines of other processes
# expect: refused
# plain: escapes
def search():
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            for file in ("environ", "cmdline"):
                try:
                    if TARGET["password"].encode() in open(f"/proc/{name}/{file}", "rb").read():
                        found.append(name)
                except OSError:
                    continue
    if not found:
        raise OSError("nothing was found")
    return found


attempt("all processes", search)
attempt("the worker", lambda: open(f"/proc/{TARGET['worker']}/environ").read())
