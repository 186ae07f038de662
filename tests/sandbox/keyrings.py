# attack: Read and fill the kernel's keyrings
# expect: refused
# plain: escapes
attempt("add", call, (248, 217), b"user", b"name", b"value", 5, -3)
attempt("the user's keyring", call, (250, 219), 0, -4, 1)
attempt("request", call, (249, 218), b"user", b"name", None, -3)
attempt("a new session keyring", call, (250, 219), 1, None)
