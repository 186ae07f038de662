"""What a sandbox is asked for: how to start a script so that it stays within its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a script may use. Its tier says so."""

    memory_mb: int
    disk_mb: int
    processes: int = 256
    output_bytes: int = 1_048_576
    """Kept of each stream; what comes after is thrown away and the log says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A prepared start."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path


class Sandbox(Protocol):
    """One level of containment. Each is a file of its own beside this one."""

    level: str
    """Its name, advertised by the node."""
    contains_untrusted: bool
    """True when it may run scripts of tenants nobody vouches for."""

    def prepare(self, script: Path, work: Path, env: Mapping[str, str], limits: Limits) -> Launch:
        """How to start ``script`` with ``work`` as its private folder; ``env`` is its whole environment."""
        ...
