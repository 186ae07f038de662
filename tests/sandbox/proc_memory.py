# attack: Read and write the memory and the files of other processes through /proc
# expect: refused
# plain: escapes
for who in ("victim", "worker"):
    pid = TARGET[who]
    attempt(f"memory of the {who}", lambda pid=pid: open(f"/proc/{pid}/mem", "r+b"))
    attempt(f"memory map of the {who}", lambda pid=pid: open(f"/proc/{pid}/maps").read(80))
    attempt(f"root of the {who}", os.listdir, f"/proc/{pid}/root/")
    attempt(f"descriptors of the {who}", os.listdir, f"/proc/{pid}/fd")
attempt("make others the first to be killed", lambda: open(f"/proc/{TARGET['victim']}/oom_score_adj", "w").write("9"))
