# attack: Inherit something of the worker: its environment, an open descriptor, a privilege
# expect: refused
KNOWN = {"PATH", "HOME", "TMPDIR", "LANG", "USER", "LOGNAME", "PWD", "LC_CTYPE"}
strange = [name for name in os.environ if name not in KNOWN and not name.startswith("SLACKWATER_")]
print("ESCAPED environment" if strange else "refused environment", strange, flush=True)
inherited = []
for number in range(3, 256):
    try:
        inherited.append((number, os.fstat(number).st_mode))
    except OSError:
        continue
print("ESCAPED descriptors" if inherited else "refused descriptors", inherited, flush=True)
print("ESCAPED user" if os.getuid() == 0 or os.geteuid() == 0 else "refused user", os.getuid(), flush=True)
print("ESCAPED groups" if 0 in os.getgroups() else "refused groups", os.getgroups(), flush=True)
