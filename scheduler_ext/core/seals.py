"""Seals: messages between the platform's processes carry a signature (HMAC) made with a key that Redis does not have.

One :class:`Seals` of a process, ``seals``, knows the keys. Which they are is told by whoever reads the settings.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from functools import lru_cache

from scheduler_ext.core.errors import ConfigurationError

LENGTH = 32
"""Characters of a mark: half of the digest, which nobody guesses."""


@lru_cache(maxsize=16)
def _key(text: str) -> bytes:
    return hmac.digest(text.encode(), b"slackwater messages", "sha256")


class Seals:
    """Marks and looks at marks. The first key marks, all hold: so a key can be changed without a stop."""

    def __init__(self, texts: Callable[[], Sequence[str]] = tuple) -> None:
        """``texts``: the secrets from which the keys are made, asked each time."""
        self.texts = texts

    def mark(self, kind: str, *parts: bytes) -> str:
        """The mark of some bytes. One of another ``kind``, or with its parts cut elsewhere, is another mark."""
        return self._mark(self._keys()[0], kind, parts)

    def holds(self, mark: object, kind: str, *parts: bytes) -> bool:
        """Whether this is the mark of these bytes."""
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
"""This process's."""
