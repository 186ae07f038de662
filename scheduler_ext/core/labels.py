"""Labels of nodes, and what work asks of them: ``ssd``, ``gpu=a100``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from scheduler_ext.core.plain_text import STEERING

WORD = rf"[^\s,={STEERING}]+"
FORM = re.compile(rf"{WORD}(={WORD})?")
LONGEST = 63
MOST = 16
"""Labels that one task may require, or prefer."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Which nodes work may run on, and which of these come first."""

    require: frozenset[str] = frozenset()
    """A node must have each: the label itself, or for a bare name any value of it."""
    prefer: frozenset[str] = frozenset()
    """Of the nodes with room those that have most of them are tried first."""


def labels_of(require: Iterable[str], prefer: Iterable[str]) -> Labels | None:
    """Both in one; ``None`` where nothing is asked for."""
    found = Labels(frozenset(require), frozenset(prefer))
    return found if found.require or found.prefer else None


def with_names(labels: Iterable[str]) -> frozenset[str]:
    """A node's labels and the names of those that have a value: ``gpu=a100`` is a ``gpu``, too."""
    return frozenset([part for label in labels for part in (label, label.partition("=")[0])])


def fault_in(label: str) -> str:
    """What is wrong with a label; empty when nothing is."""
    if len(label) > LONGEST:
        return f"must be at most {LONGEST} characters"
    return "" if FORM.fullmatch(label) else "must be NAME or NAME=VALUE, without spaces and commas"
