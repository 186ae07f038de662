"""Labels of nodes, and the labels that work requires or prefers: ``ssd``, ``gpu=a100``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from scheduler_ext.core.plain_text import STEERING

WORD = rf"[^\s,={STEERING}]+"
FORM = re.compile(rf"{WORD}(={WORD})?")
LONGEST = 63
RESERVED = "reserved"
"""The label of a node that runs only what requires one of its labels."""
MOST = 16
"""How many labels one task may require, or prefer."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Which nodes may run a task, and which of these are tried first."""

    require: frozenset[str] = frozenset()
    """Labels a node must have: exactly this one, or for a bare name any value of it."""
    prefer: frozenset[str] = frozenset()
    """Labels a node should have: of the nodes with room, those with most of them are tried first."""


def labels_of(require: Iterable[str], prefer: Iterable[str]) -> Labels | None:
    """Join two sets of wishes; ``None`` where both are empty."""
    found = Labels(frozenset(require), frozenset(prefer))
    return found if found.require or found.prefer else None


def with_names(labels: Iterable[str]) -> frozenset[str]:
    """A node's labels, and for each label with a value its bare name: ``gpu=a100`` counts as ``gpu`` too."""
    return frozenset([part for label in labels for part in (label, label.partition("=")[0])])


def admits(has: frozenset[str], require: frozenset[str]) -> bool:
    """Whether a node with these labels runs work that requires those."""
    return require <= has and (bool(require) or RESERVED not in has)


def fault_in(label: str) -> str:
    """Say what is wrong with a label; empty if nothing is."""
    if len(label) > LONGEST:
        return f"must be at most {LONGEST} characters"
    return "" if FORM.fullmatch(label) else "must be NAME or NAME=VALUE, without spaces and commas"
