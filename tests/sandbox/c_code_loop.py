# attack: A loop inside C code that never comes back to look for signals
# expect: cap
import re

signal.signal(signal.SIGTERM, lambda *_: None)
re.match(r"(a+)+$", "a" * 64 + "b")
