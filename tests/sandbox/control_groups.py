# attack: Leave one's control group, or make one that counts nothing
# expect: refused
def write(path, data):
    handle = os.open(path, os.O_WRONLY)
    try:
        return os.write(handle, data)
    finally:
        os.close(handle)


me = str(os.getpid()).encode()
for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"):
    attempt(f"into {root}", write, f"{root}/cgroup.procs", me)
    attempt(f"below {root}", os.mkdir, f"{root}/hidden")
attempt("what runs when a group is empty", write, "/sys/fs/cgroup/memory/release_agent", b"/bin/sh")
attempt("mount them anew", call, (165, 40), b"cgroup", b"/tmp", b"cgroup", 0, b"memory")
attempt("mount the second kind", call, (165, 40), b"cgroup2", b"/tmp", b"cgroup2", 0, None)
