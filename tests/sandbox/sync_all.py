# attack: Have every disk of the machine written out, over and over
# expect: refused
# plain: escapes
attempt("all disks", call, (162, 81))
attempt("the disk of a file", call, (306, 267), os.open(".", os.O_RDONLY))
