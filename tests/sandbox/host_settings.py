# attack: Change the node: its name, its kernel's settings, its control groups
# expect: refused
attempt("host name", socket.sethostname, "owned")
for path in ("/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern"):
    attempt(path, lambda path=path: os.write(os.open(path, os.O_WRONLY), b"0"))
attempt("a control group", os.mkdir, "/sys/fs/cgroup/memory/owned")
attempt("leave one's group", lambda: os.write(os.open("/sys/fs/cgroup/pids/cgroup.procs", os.O_WRONLY), b"0"))
attempt("list them", os.listdir, "/sys/fs/cgroup")
