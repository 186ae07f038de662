"""Where sockets, passwords and free ports come from."""

import contextlib
import hashlib
import os
import secrets
import shutil
import socket
import stat
import tempfile
from pathlib import Path

from slackwater.local.process import RunAs, give_to_server, unprivileged
from slackwater.local.servers.server import ServerError
from slackwater.settings.local import write_private

MAX_SOCKET_FOLDER_BYTES = 80  # bytes; a socket's whole path must stay below 108
MIN_FREE_BYTES = 200 * 1024 * 1024  # bytes


def socket_folder(var: Path) -> Path:
    """Return a private folder with a path short enough for unix sockets, made where needed.

    It is `run` below `var`; for a deep `var` one in the system's temporary folder stands in.
    Raises ServerError when that one belongs to somebody else.
    """
    folder = var / "run"
    if len(os.fsencode(folder)) > MAX_SOCKET_FOLDER_BYTES:
        digest = hashlib.sha256(os.fsencode(var)).hexdigest()[:12]
        folder = Path(tempfile.gettempdir()) / f"slackwater-{os.geteuid()}-{digest}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    run_as = unprivileged()
    give_to_server(folder, run_as)
    found = folder.lstat()
    owner = 65534 if run_as is RunAs.NOBODY else os.geteuid()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner:
        raise ServerError(f"{folder} belongs to another user (uid {found.st_uid}); remove it or set SLACKWATER_VAR")
    folder.chmod(0o700)
    return folder


def keep_private(var: Path) -> None:
    """Make all that lies in `var`, and all that this process and its children will put there, its owner's alone.

    What an earlier version left open is mended. Only a server that really runs as another user gets through, to the
    folder that is its own.
    """
    os.umask(0o077)
    var.mkdir(parents=True, exist_ok=True)
    for folder, folders, files in os.walk(var):
        # PostgreSQL sees to its own, and it may be large.
        folders[:] = [name for name in folders if name != "postgres" and not (Path(folder) / name).is_symlink()]
        for path in (Path(folder), *(Path(folder) / name for name in files)):
            with contextlib.suppress(OSError):
                mode = stat.S_IMODE(path.lstat().st_mode)
                if mode & 0o077 and not path.is_symlink():
                    path.chmod(mode & 0o700)
    var.chmod(0o711 if unprivileged() is RunAs.NOBODY else 0o700)


def password_in(path: Path, *, data_exists: bool, server: str) -> str:
    """Return the password kept in a private file, made at first use.

    Raises ServerError when the data is there but its password is gone, since a new one would not open it.
    """
    if path.exists():
        return path.read_text().strip()
    if data_exists:
        raise ServerError(f"{path} is missing, and with it the password of {server}'s data; restore that file")
    write_private(path, secrets.token_hex(24))
    return path.read_text().strip()


def free_port() -> int:
    """Return a TCP port of the loopback interface that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def require_space(folder: Path) -> None:
    """Raise ServerError when the disk below a folder is (nearly) full."""
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise ServerError(
            f"the disk is full: {free // 2**20} MiB free at {folder}, {MIN_FREE_BYTES // 2**20} MiB are needed"
        )
