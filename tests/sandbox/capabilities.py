# attack: Get capabilities, keep them over a change of user, or become root again
# expect: refused
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
everything = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
attempt("all of them", call, (126, 91), header, everything)
attempt("ambient ones", call, (157, 167), 47, 2, 21, 0, 0)
attempt("bits that keep them", call, (157, 167), 28, 0x2F, 0, 0, 0)
attempt("one out of the bounds", call, (157, 167), 24, 0, 0, 0, 0)
attempt("root", os.setresuid, 0, 0, 0)
attempt("root's group", os.setresgid, 0, 0, 0)
attempt("groups", os.setgroups, [0, 1, 2])
attempt("another's files", call, (157, 167), 35, 13, 3, 0, 0)
