"""Dominant resource fairness: equal dominant shares, by weight, at each level of the pools.

A task's dominant share is the largest of its shares of CPU, memory, disk, IOPS, bandwidth, ports and slots. The line
with the smallest weighted dominant share is served next; one whose tasks do not fit what is left holds up nobody. (Ghodsi
and others, "Dominant Resource Fairness", NSDI 2011.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from scheduler_ext.policies.share.terms import PooledShare


@dataclass(frozen=True, slots=True, kw_only=True)
class DominantResourceShare(PooledShare):
    """Equal dominant shares by weight, over tenants and over the pools they stand in."""

    settings: ClassVar[tuple[str, ...]] = ("weight",)
    name: str = "dominant_resource"
    pools: Mapping[str, Any] = field(default_factory=dict)
    """``{"org/team": {"weight": 2}}``; a pool without an entry has weight 1."""
