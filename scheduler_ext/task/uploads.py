"""An uploaded file as a handler reads it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import BinaryIO, Final, cast

AHEAD: Final = 1_048_576
"""Bytes asked for at once."""


class UploadedFile(io.RawIOBase):
    """Reads pieces as they are asked for; seekable."""

    def __init__(self, size: int, read: Callable[[int, int], bytes]) -> None:
        """``read(start, end)`` returns those bytes."""
        self._size, self._read, self._at = size, read, 0

    @classmethod
    def opened(cls, size: int, read: Callable[[int, int], bytes]) -> BinaryIO:
        """Open it behind a buffer."""
        return cast("BinaryIO", io.BufferedReader(cls(size, read), AHEAD))

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a place, as :meth:`io.IOBase.seek`."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("there is nothing before the file's beginning")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """The present place."""
        return self._at

    def readall(self) -> bytes:
        """Read the rest at once; the inherited method reads eight kilobytes at a time."""
        start, self._at = self._at, max(self._at, self._size)
        return self._read(start, self._size) if start < self._size else b""

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill ``buffer`` as far as the file goes."""
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        found = self._read(self._at, end)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)
