# attack: Rewrite what the kernel says of one's process: program, addresses, parent's death signal, place for the killer
# expect: refused
def write(path, data):
    return os.write(os.open(path, os.O_WRONLY), data)


attempt("never killed for memory", write, "/proc/self/oom_score_adj", b"-1000")
attempt("another program's name", call, (157, 167), 35, 13, os.open("/bin/sh", os.O_RDONLY), 0, 0)
attempt("other addresses", call, (157, 167), 35, 1, 0, 0, 0)
attempt("the login's user", write, "/proc/self/loginuid", b"0")
attempt("a user map", write, "/proc/self/uid_map", b"0 0 1")
attempt("new privileges allowed", call, (157, 167), 38, 0, 0, 0, 0)
