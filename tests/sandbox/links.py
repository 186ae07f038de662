# attack: Reach secrets by symbolic and hard links and by climbing out of the work folder
# expect: refused
# plain: escapes
def through_link():
    os.symlink(TARGET["secret"], "link")
    return open("link").read()


def through_hard_link():
    os.link(TARGET["secret"], "hard")
    return open("hard").read()


def upwards():
    return open("../" * 40 + TARGET["secret"].lstrip("/")).read()


def through_descriptor():
    return open(f"/proc/self/cwd/{'../' * 40}{TARGET['secret'].lstrip('/')}").read()


attempt("symbolic link", through_link)
attempt("hard link", through_hard_link)
attempt("climbing", upwards)
attempt("through its own descriptor", through_descriptor)
