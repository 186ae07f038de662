"""RLIMIT_NPROC counts a user's processes wherever they are: what cannot be seen from a container is found by trying."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

UID = 61_999
OTHERS = 40
LOOK = """
import os, sys
from scheduler_ext.sandbox.keeper import privileges, process_tree
uid = int(sys.argv[1])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
print(process_tree.threads_of_user(uid), privileges.hidden_threads(uid))
"""


def looked(*before: str) -> tuple[int, int]:
    done = subprocess.run([*before, sys.executable, "-c", LOOK, str(UID)], capture_output=True, text=True, check=False)
    if before and done.returncode and "unshare" in done.stderr:
        pytest.skip(f"no process namespace here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    seen, hidden = done.stdout.split()
    return int(seen), int(hidden)


def test_what_others_run_unseen_is_counted() -> None:
    if os.getuid() != 0:
        pytest.skip("only root may start processes as other users")
    with contextlib.ExitStack() as ended:
        for _ in range(OTHERS):
            other = subprocess.Popen(["/bin/sleep", "60"], user=UID, group=UID, extra_groups=[])
            ended.callback(other.wait)
            ended.callback(other.kill)
        assert looked() == (OTHERS + 1, 0), "here all can be seen"
        seen, hidden = looked("unshare", "--pid", "--fork", "--mount-proc")
        assert seen == 1
        assert OTHERS <= hidden < OTHERS + 200
