# attack: Become another user: by the call, by programs that may, by a program of one's own
# expect: refused
import shutil
import subprocess


def run(*command):
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=5)
    if b"uid=0" not in done.stdout:
        raise OSError(done.stderr.decode()[:80] or done.stdout.decode()[:80] or "no")
    return done.stdout


def own_program():
    shutil.copy("/usr/bin/id", "id")
    os.chmod("id", 0o6755)
    return run("./id")


attempt("setuid", os.setuid, 0)
attempt("setresgid", os.setresgid, 0, 0, 0)
attempt("groups", os.setgroups, [0])
attempt("su", run, "su", "-c", "id")
attempt("sudo", run, "sudo", "-n", "id")
attempt("own program", own_program)
attempt("give a file to root", lambda: (open("f", "w").close(), os.chown("f", 0, 0)))
