# attack: Have every disk of the machine written out, over and over
# expect: refused
# plain: escapes
# A filesystem in memory first: that it is let do this is told at once, while busy disks may take longer than a script may.
attempt("what is in memory", call, (306, 267), os.open("/dev/null", os.O_RDONLY))
attempt("all disks", call, (162, 81))
attempt("the disk of a file", call, (306, 267), os.open(".", os.O_RDONLY))
