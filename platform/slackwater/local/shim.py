"""The last thing that happens before a child becomes another program: `shim.py SIGNAL PARENT MODE -- COMMAND`.

It asks the kernel to send SIGNAL when PARENT dies, gives up root as MODE says, and becomes COMMAND. A
program of its own rather than a preexec_fn, because code between fork and exec is not safe in a process with
threads. Run with -I -S, it costs about ten milliseconds.

Modes: `self` keeps the user; `namespace` enters a user namespace in which the caller is nobody, so that a
server that refuses root runs and owns its files while holding no capability outside; `nobody` becomes user
65534 for good, where namespaces are refused.
"""

import ctypes
import os
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x10000000
NOBODY = 65534
REFUSED = 97  # exit code: the mode cannot be had on this machine
ORPHANED = 98  # exit code: the parent was gone before the signal could be asked for


def enter_user_namespace(libc: ctypes.CDLL) -> None:
    """Map the caller to nobody in a user namespace of its own."""
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWUSER) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"user namespaces are refused here: {os.strerror(number)}")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{NOBODY} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{NOBODY} {group} 1")


def become_nobody() -> None:
    """Drop root for good."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def main(arguments: list[str]) -> None:
    """Become the command; returns only by an exception or an exit code."""
    signal_number, parent, mode = int(arguments[0]), int(arguments[1]), arguments[2]
    command = arguments[4:]
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if mode == "namespace":
            enter_user_namespace(libc)
        elif mode == "nobody":
            become_nobody()
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(REFUSED)
    # After the change of user, which would clear it.
    libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(ORPHANED)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
