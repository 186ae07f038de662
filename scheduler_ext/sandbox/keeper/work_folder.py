"""The private work folder of a slot: a sized file system in memory, or a folder whose size is watched."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import subprocess
from pathlib import Path
from typing import Final

from scheduler_ext.sandbox.base import Limits
from scheduler_ext.sandbox.keeper import checkpoint_folder

MIB: Final = 1024 * 1024
FLOOR_MB: Final = 16
"""The least room that every script has, even if its tier has no disk."""
RESULT: Final = "result.json"
ARTIFACTS: Final = "artifacts"
_MS_NOSUID: Final = 2
_MS_NODEV: Final = 4
_MS_REC: Final = 16384
_MS_PRIVATE: Final = 1 << 18
_MNT_DETACH: Final = 2
_NEWNS: Final = 0x20000
_NEWUSER: Final = 0x10000000
_BLOCK: Final = 512


def disk_bytes(limits: Limits) -> int:
    """How much a script may write."""
    return max(limits.disk_mb, FLOOR_MB) * MIB


def fill(path: str, uid: int | None, script: bytes, inputs: bytes) -> None:
    """Put the script and its inputs into a work folder; this process owns them, the script may only read."""
    if not script.startswith(b"#!"):
        script = b"#!/bin/sh\n" + script
    for name, content, mode in (("script", script, 0o555), ("inputs.json", inputs, 0o444)):
        handle = os.open(f"{path}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
    Path(path, ARTIFACTS).mkdir(mode=0o700)
    if uid is not None:
        os.chown(path, uid, uid)
        os.chown(f"{path}/{ARTIFACTS}", uid, uid)


def read_result(path: str, most: int) -> tuple[bytes | None, str]:
    """The content of the result file, or why it cannot be taken. Links, devices and pipes are not followed."""
    try:
        handle = os.open(f"{path}/{RESULT}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        return None, ""
    except OSError:
        return None, "its result file cannot be read: it must be a file"
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return None, "its result file is no file"
        if status.st_size > most:
            return None, f"its result has {status.st_size} bytes, at most {most} are kept"
        return file.read(most), ""


def read_artifacts(path: str, uid: int | None, most: int) -> tuple[bytes | None, str]:
    """The content of the folder of artifacts, packed, or why it cannot be taken. Nothing runs there any more."""
    folder = f"{path}/{ARTIFACTS}"
    try:
        seen = checkpoint_folder.look(folder, uid)
        return (checkpoint_folder.pack(folder, seen, uid, most), "") if seen else (None, "")
    except checkpoint_folder.TooMuch as error:
        return None, f"its artifacts are not kept: {error}"
    except (checkpoint_folder.Moving, OSError, ValueError):
        return None, "its artifacts cannot be read"


class MemoryPlace:
    """A tmpfs of the tier's size in a mount namespace that only this keeper has: bytes and files end there."""

    def __init__(self, root: str) -> None:
        """``OSError`` where this process may not mount."""
        self.path = f"{root}/work"  # empty but in this process's own view
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._mounted = False
        self._limit = self.used_bytes = 0
        user, group = os.getuid(), os.getgid()
        self._check(self._libc.unshare(_NEWNS | (_NEWUSER if user else 0)), "no mount namespace")
        if user:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        self._check(self._libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mounts stay shared")
        Path(self.path).mkdir(exist_ok=True)
        Path(self.path).chmod(0o711)
        self.make(Limits(cpu_milli=1, memory_mb=1, disk_mb=1, cap_ms=1), None, b"", b"")
        self.clear()

    def _check(self, code: int, what: str) -> None:
        if code:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")

    def make(self, limits: Limits, uid: int | None, script: bytes, inputs: bytes) -> None:
        """Mount it with one MiB beyond the limit, by which an excess is noticed."""
        self._limit, self.used_bytes = self.room(limits, script, inputs), 0
        options = f"size={self._limit + MIB},nr_inodes={limits.files + 8},mode=0700"
        flags = _MS_NOSUID | _MS_NODEV
        self._check(self._libc.mount(b"work", self.path.encode(), b"tmpfs", flags, options.encode()), "no tmpfs")
        self._mounted = True
        fill(self.path, uid, script, inputs)

    @staticmethod
    def room(limits: Limits, script: bytes, inputs: bytes) -> int:
        """Bytes it may hold: the script's own, and its inputs."""
        return disk_bytes(limits) + len(script) + len(inputs) + 16_384

    def full(self) -> bool:
        """Whether bytes or files have run out."""
        status = os.statvfs(self.path)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        self.used_bytes = max(self.used_bytes, used)
        return used > self._limit or (status.f_files > 0 and status.f_ffree == 0)

    def clear(self) -> None:
        """Unmount it; its pages go at once."""
        if self._mounted:
            self._check(self._libc.umount2(self.path.encode(), _MNT_DETACH), "work folder not unmounted")
            self._mounted = False


class FolderPlace:
    """A folder on disk, measured from time to time: a write between two measurements may pass the limit."""

    def __init__(self, root: str) -> None:
        self.path = f"{root}/folder"
        self._bytes = self._files = self.used_bytes = 0

    def make(self, limits: Limits, uid: int | None, script: bytes, inputs: bytes) -> None:
        self._bytes, self.used_bytes = disk_bytes(limits) + len(script) + len(inputs), 0
        self._files = limits.files + 3  # its own: the script, its inputs, the folder of artifacts
        self.clear()
        Path(self.path).mkdir(mode=0o700)
        fill(self.path, uid, script, inputs)

    def full(self) -> bool:
        """Whether bytes or files exceed the limit, or lie too deep to be counted."""
        used = files = 0
        folders = [self.path]
        while folders:
            try:
                with os.scandir(folders.pop()) as entries:
                    for entry in entries:
                        status = entry.stat(follow_symlinks=False)
                        used += min(status.st_blocks * _BLOCK, 1 << 50)
                        files += 1
                        self.used_bytes = max(self.used_bytes, used)
                        if used > self._bytes or files > self._files:
                            return True
                        if stat.S_ISDIR(status.st_mode):
                            folders.append(entry.path)
            except FileNotFoundError:
                continue
            except PermissionError:
                with contextlib.suppress(OSError):
                    os.chmod(entry.path if files else self.path, 0o700, follow_symlinks=False)  # noqa: PTH101
                return True
            except OSError:
                return True
        return False

    def clear(self) -> None:
        """Remove it with ``rm``, which goes to any depth."""
        if Path(self.path).exists():
            subprocess.run(["/bin/chmod", "-R", "u+rwX", self.path], check=False, stderr=subprocess.DEVNULL)
            subprocess.run(["/bin/rm", "-rf", "--one-file-system", self.path], check=False)


Place = MemoryPlace | FolderPlace
"""Where one script at a time works. ``used_bytes`` is the most it held of this script at any measurement."""
