"""Seals sign messages between the platform's processes (HMAC) with a key that Redis does not have.

One :class:`Seals` of a process, ``seals``, knows the keys. Which they are is told by whoever reads the settings.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from functools import lru_cache

from scheduler_ext.core.errors import ConfigurationError

LENGTH = 32
"""Characters of a signature: half of the digest, still beyond guessing."""


@lru_cache(maxsize=16)
def _key(text: str) -> bytes:
    return hmac.digest(text.encode(), b"slackwater messages", "sha256")


class Seals:
    """Signs and verifies. The first key signs and every key verifies, so a key can be changed without a stop."""

    def __init__(self, texts: Callable[[], Sequence[str]] = tuple) -> None:
        """``texts`` returns the secrets the keys are derived from; it is called each time."""
        self.texts = texts

    def mark(self, kind: str, *parts: bytes) -> str:
        """Sign some bytes. Another ``kind``, or the same bytes split at another place, gives another signature."""
        return self._mark(self._keys()[0], kind, parts)

    def holds(self, mark: object, kind: str, *parts: bytes) -> bool:
        """Whether this is a signature of these bytes."""
        if not isinstance(mark, str) or len(mark) != LENGTH or not mark.isascii():
            return False
        return any(hmac.compare_digest(mark, self._mark(text, kind, parts)) for text in self._keys())

    @staticmethod
    def _mark(text: str, kind: str, parts: Sequence[bytes]) -> str:
        head = ":".join([kind, *(str(len(part)) for part in parts), ""]).encode()
        return hmac.digest(_key(text), b"".join((head, *parts)), "sha256").hex()[:LENGTH]

    def _keys(self) -> Sequence[str]:
        texts = self.texts()
        if not texts:
            raise ConfigurationError("set SLACKWATER_SECRET_KEY: without it no process believes another's messages")
        return texts


seals = Seals()
"""The seals of this process."""
