# attack: Use up the watches on files that a user may have
# expect: refused
# plain: escapes
attempt("watch", call, (294, 26), 0)
attempt("many", lambda: [call((294, 26), 0) for _ in range(20)])
