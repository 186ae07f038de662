# attack: Become root in namespaces of one's own, where much of the kernel can be attacked
# expect: refused
# plain: escapes
for name, flag in (
    ("user", 0x10000000), ("mount", 0x20000), ("network", 0x40000000), ("process", 0x20000000),
    ("time", 0x80), ("cgroup", 0x02000000),
):
    attempt(name, call, (272, 97), flag)
attempt("clone3", call, (435, 435), ctypes.create_string_buffer(88), 88)
attempt("enter the worker's", lambda: call((308, 268), os.open(f"/proc/{TARGET['worker']}/ns/mnt", 0), 0))
