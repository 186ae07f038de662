"""Due, missed and next firings of one schedule: pure calculations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final

from django.db.models import TextChoices

from slackwater_schedules.recurrence import Rule, next_after

PASS_LIMIT: Final = 1_000
"""The most firings of one schedule that one pass looks at; what is left comes in the next."""


class Missed(TextChoices):
    """The treatment of firings that no beat could make in time."""

    SKIP = "skip", "skip them"
    ONE = "one", "make the latest"
    ALL = "all", "make the latest ones, up to the limit"
    WINDOW = "window", "make those within the window"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedPolicy:
    """The policy with its numbers."""

    kind: Missed
    after: timedelta
    """A firing later than this is a missed one; up to here it is only late."""
    limit: int
    window: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A firing whose time has come."""

    fire_at: datetime
    due_at: datetime
    run: bool
    """False: it is recorded as missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The result of one pass over a schedule."""

    due: tuple[Due, ...]
    next_fire: datetime | None
    """The first firing the pass leaves; it may be due already, when there were too many."""


def jitter(seed: bytes, fire_at: datetime, most_s: int) -> timedelta:
    """A fixed part of ``most_s`` for this firing: the same for every beat, spread evenly over firings."""
    if most_s <= 0:
        return timedelta()
    digest = blake2b(seed + str(int(fire_at.timestamp())).encode(), digest_size=8).digest()
    return timedelta(milliseconds=int.from_bytes(digest, "big") % (most_s * 1000))


def plan(
    rule: Rule, first: datetime, now: datetime, policy: MissedPolicy, *, seed: bytes = b"", jitter_s: int = 0
) -> Plan:
    """Take the firings due at ``now``, from ``first`` (a firing of the rule) on, and decide which of them run.

    Once anything due has been missed, ``one`` runs the latest of all that is due, and ``all`` the latest ``limit``;
    ``skip`` and ``window`` look at each firing alone. "All that is due" is what one pass takes: after a thousand, those
    left are judged by themselves.
    """
    keep = 1 if policy.kind is Missed.ONE else policy.limit
    found: list[tuple[datetime, datetime]] = []
    fire_at: datetime | None = first
    while fire_at is not None and len(found) < PASS_LIMIT + keep:
        due_at = fire_at + jitter(seed, fire_at, jitter_s)
        if due_at > now:
            break
        found.append((fire_at, due_at))
        fire_at = next_after(rule, fire_at)
    if len(found) < PASS_LIMIT + keep:
        return Plan(due=_judge(found, now, policy, keep=keep), next_fire=fire_at)
    # More are due than one pass takes: those taken have at least `keep` later ones, so none is among the latest.
    taken, next_fire = found[:PASS_LIMIT], found[PASS_LIMIT][0]
    return Plan(due=_judge(taken, now, policy, keep=0), next_fire=next_fire)


def _judge(
    found: Sequence[tuple[datetime, datetime]], now: datetime, policy: MissedPolicy, *, keep: int
) -> tuple[Due, ...]:
    is_missed = [now - due_at > policy.after for _, due_at in found]
    if not any(is_missed):
        runs = [True] * len(found)
    elif policy.kind in (Missed.ONE, Missed.ALL):
        runs = [index >= len(found) - keep for index in range(len(found))]
    elif policy.kind is Missed.SKIP:
        runs = [not missed for missed in is_missed]
    else:
        within = [now - fire_at <= policy.window for fire_at, _ in found]
        runs = [inside or not missed for inside, missed in zip(within, is_missed, strict=True)]
    return tuple(
        Due(fire_at=fire_at, due_at=due_at, run=run) for (fire_at, due_at), run in zip(found, runs, strict=True)
    )
