"""Packs what a script saves in its ``CHECKPOINT_DIR``, and restores it, each time as a whole.

The folder belongs to the script, who may do in it what it likes while it is read. So nothing is followed: each folder
is opened relative to the one above it, links and devices are left out, and a look before and after tells whether what
was read stood still. Names that begin with a dot are not published yet: a script writes to such a name, calls fsync,
and renames.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "checkpoint"
MAX_FILES: Final = 1_000
MAX_DEPTH: Final = 16

Seen = tuple[str, int, int, int, int]
"""Path, inode, size, time of its last change, mode of one published file."""


class Moving(Exception):
    """The script changed something meanwhile; look again later."""


class TooMuch(Exception):
    """There is more than may be saved; the message says what."""


def look(folder: str, uid: int | None) -> tuple[Seen, ...]:
    """List the published files; ``TooMuch`` for too many. ``uid``: only files of that user count."""
    found: list[Seen] = []
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ()
    _look_in(handle, "", uid, found, MAX_DEPTH)
    return tuple(sorted(found))


def _look_in(handle: int, prefix: str, uid: int | None, found: list[Seen], deeper: int) -> None:
    """Closes ``handle``."""
    try:
        with os.scandir(handle) as entries:
            for number, entry in enumerate(entries):
                if number >= MAX_FILES or len(found) >= MAX_FILES:
                    raise TooMuch(f"it has more than {MAX_FILES} files")
                if not entry.name.startswith("."):
                    _take(handle, entry, prefix, uid, found, deeper)
    except (FileNotFoundError, NotADirectoryError):
        raise Moving from None
    finally:
        os.close(handle)


def _take(handle: int, entry: os.DirEntry[str], prefix: str, uid: int | None, found: list[Seen], deeper: int) -> None:
    status = entry.stat(follow_symlinks=False)
    if uid is not None and status.st_uid != uid:
        return
    path = prefix + entry.name
    path.encode()  # a name that is no UTF-8 is refused as what it is: UnicodeEncodeError, a ValueError
    if stat.S_ISREG(status.st_mode):
        found.append((path, status.st_ino, status.st_size, status.st_mtime_ns, stat.S_IMODE(status.st_mode) & 0o700))
    elif stat.S_ISDIR(status.st_mode):
        if not deeper:
            raise TooMuch(f"its folders are more than {MAX_DEPTH} deep")
        below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
        _look_in(below, f"{path}/", uid, found, deeper - 1)


def pack(folder: str, seen: tuple[Seen, ...], uid: int | None, most: int) -> bytes:
    """Pack the files of ``seen``; ``Moving`` if one has changed since, ``TooMuch`` beyond ``most`` bytes."""
    size = sum(each[2] for each in seen)
    if size > most:
        raise TooMuch(f"it has {size} bytes, the plan allows {most}")
    header = json.dumps([[path, size, mode] for path, _, size, _, mode in seen]).encode() + b"\n"
    parts = [header]
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        parts += [_read(root, each) for each in seen]
    except OSError:
        raise Moving from None
    finally:
        os.close(root)
    if look(folder, uid) != seen:
        raise Moving
    content = b"".join(parts)
    if len(content) > most:
        raise TooMuch(f"it has {len(content)} bytes, the plan allows {most}")
    return content


def _read(root: int, each: Seen) -> bytes:
    """One file, by the folders above it."""
    path, inode, size, _, _ = each
    *above, name = path.split("/")
    held = os.dup(root)
    try:
        for folder in above:
            below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=held)
            os.close(held)
            held = below
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=held)
    finally:
        os.close(held)
    with os.fdopen(handle, "rb") as file:
        if os.fstat(handle).st_ino != inode:
            raise Moving
        content = file.read(size)
    if len(content) != size:
        raise Moving
    return content


def _listed(content: bytes) -> tuple[Any, int]:
    """Read the list of files at the head of a pack, and where the first one begins."""
    at = content.index(b"\n") + 1
    return json.loads(content[:at]), at


def files_of(content: bytes) -> list[tuple[str, bytes]]:
    """The paths and contents of a pack."""
    files, at = _listed(content)
    found = []
    for path, size, _ in files:
        found.append((str(path), content[at : at + size]))
        at += size
    return found


def check(content: bytes) -> None:
    """Check that this is a pack; ``ValueError`` otherwise: whoever packed it may be broken or hostile."""
    files, at = _listed(content)
    if not isinstance(files, list) or len(files) > MAX_FILES:
        raise ValueError("it has no list of files")
    for entry in files:
        if not isinstance(entry, list) or [type(part) for part in entry] != [str, int, int]:
            raise ValueError("its list of files is wrong")
        path, size, mode = entry
        _check_path(path)
        if size < 0 or not 0 <= mode <= 0o777:
            raise ValueError(f"{path!r} has a strange size or mode")
        at += size
    if at != len(content):
        raise ValueError("its files are longer or shorter than its list says")


def _check_path(path: str) -> None:
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\x00" in part for part in parts):
        raise ValueError(f"{path!r} is no path inside the checkpoint")


def unpack(folder: str, content: bytes, uid: int | None) -> None:
    """Restore a pack into a new ``folder``; ``ValueError`` if it is none. Nothing runs there yet."""
    Path(folder).mkdir(mode=0o700)
    made = [folder]
    files, at = _listed(content) if content else ([], 0)
    for path, size, mode in files:
        _check_path(str(path))
        parts = str(path).split("/")
        above = Path(folder, *parts[:-1])
        for parent in reversed([above, *above.parents]):
            if str(parent).startswith(f"{folder}/") and not parent.exists():
                parent.mkdir(mode=0o700)
                made.append(str(parent))
        target = Path(folder, *parts)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content[at : at + size])
            os.fchmod(handle, int(mode) | 0o600)
        at += size
        made.append(str(target))
    if uid is not None:
        for name in made:
            os.chown(name, uid, uid, follow_symlinks=False)
