# attack: Climb through /proc into the file system, the folder and the program of others
# expect: refused
# plain: escapes
for who in ("victim", "worker"):
    for path in ("root/etc/passwd", "exe", "maps", "environ", "auxv", "fd/0"):
        attempt(f"{path} of the {who}", lambda where: open(where, "rb").read(1), f"/proc/{TARGET[who]}/{path}")
    attempt(f"folder of the {who}", os.listdir, f"/proc/{TARGET[who]}/cwd")
