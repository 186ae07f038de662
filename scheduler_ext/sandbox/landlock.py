"""Landlock: a process gives up access to foreign files, network and signals. It needs no user namespace and no binary."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CREATE: Final = 444
_ADD_RULE: Final = 445
_RESTRICT: Final = 446
_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_EXECUTE: Final = 1 << 0
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_READ_DIR: Final = 1 << 3
_TRUNCATE: Final = 1 << 14
_IOCTL_DEV: Final = 1 << 15
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ_EXECUTE: Final = _EXECUTE | _READ_FILE | _READ_DIR
_TCP: Final = 3
_SCOPED: Final = 3

NEEDED_ABI: Final = 6
"""The version of Landlock that contains: files came with 1, the network with 4, signals and abstract sockets with 6.
"""
SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/etc/ld.so.cache", "/etc/alternatives",
                 "/etc/localtime")  # fmt: skip
FOR_NETWORK: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/ca-certificates")
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """The version of Landlock this kernel offers; 0 for none."""
    return max(0, int(_libc().syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION)))


def _files(version: int) -> int:
    """All rights over files that this version knows."""
    return (1 << 16) - 1 if version >= 5 else (1 << 15) - 1 if version >= 3 else (1 << 14) - 1


def restrict(work: str, *, network: bool) -> None:
    """Restrict this process and its children to ``work`` and, read-only, the system. ``OSError`` where the kernel
    refuses.

    ``OSError`` where the kernel refuses.
    """
    libc, version = _libc(), abi()
    handled = _files(version)
    with _put_on(libc, handled, 0 if network else _TCP, _SCOPED) as ruleset:
        _allow(libc, ruleset, work, handled)
        for path in SYSTEM + (FOR_NETWORK if network else ()):
            if Path(path).exists():
                _allow(libc, ruleset, path, _READ_EXECUTE)
        for path in DEVICES:
            with contextlib.suppress(FileNotFoundError):
                _allow(libc, ruleset, path, _READ_FILE | _WRITE_FILE)


def hide(*hidden: str) -> None:
    """Take these folders of the root, and signals to others, from this process and its children.

    For the inside of a container, where the rest is contained already: a kernel without Landlock changes nothing.
    Listing the root itself is refused too. ``OSError`` where the kernel has it and refuses.
    """
    libc, version = _libc(), abi()
    if not version:
        return
    handled = _files(version)
    with _put_on(libc, handled, 0, _SCOPED if version >= NEEDED_ABI else 0) as ruleset:
        for entry in Path("/").iterdir():
            if str(entry) not in hidden and entry.exists():
                _allow(libc, ruleset, str(entry), handled)


@contextlib.contextmanager
def _put_on(libc: ctypes.CDLL, files: int, network: int, scoped: int) -> Iterator[int]:
    """Rules to add exceptions to; they hold from the end of the block. ``OSError`` where the kernel refuses."""
    described = struct.pack("QQQ", files, network, scoped)
    ruleset = int(libc.syscall(_CREATE, described, ctypes.c_size_t(len(described)), 0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "Landlock refused the rules")
    try:
        yield ruleset
        if libc.prctl(38, 1, 0, 0, 0) or libc.syscall(_RESTRICT, ruleset, 0):
            raise OSError(ctypes.get_errno(), "Landlock could not be put on")
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        wanted = rights if Path(path).is_dir() else rights & _OF_FILES
        rule = struct.pack("=Qi", wanted, place)
        if libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0):
            raise OSError(ctypes.get_errno(), f"Landlock refused the rule for {path}")
    finally:
        os.close(place)
