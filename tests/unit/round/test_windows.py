"""Ceilings by category and by time of day; below them no slot stays idle while work waits."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.ceiling_windows import open_ceilings
from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import Reason, WorkKind
from scheduler_ext.policies.registry import share_policy
from scheduler_ext.round.gate import ceilings
from scheduler_ext.round.prioritizer import prioritize
from tests.support.deciding import many, node, snapshot

NIGHT = "22:00-06:00 Europe/Berlin"


def at(text: str, zone: str = "Europe/Berlin") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("windows", "moment", "found"),
    [
        (NIGHT, "2026-11-21 21:59", {}),
        (NIGHT, "2026-11-21 22:00", {"offpeak": 1000}),
        (NIGHT, "2026-11-22 05:59", {"offpeak": 1000}),
        (NIGHT, "2026-11-22 06:00", {}),
        ("mon-fri " + NIGHT, "2026-11-21 23:00", {}),  # a Saturday
        ("mon-fri " + NIGHT, "2026-11-21 03:00", {"offpeak": 1000}),  # Friday's night lasts into it
        ("mon-fri " + NIGHT, "2026-11-23 03:00", {}),  # Sunday's does not
        ("sat,sun 00:00-24:00 UTC delayable=900 offpeak=500", "2026-11-22 12:00", {"delayable": 900, "offpeak": 500}),
        (f"{NIGHT} offpeak=900; 23:00-24:00 Europe/Berlin offpeak=100", "2026-11-21 23:30", {"offpeak": 100}),
        ("22:00-23:00 America/New_York", "2026-11-22 04:30", {"offpeak": 1000}),
        # The clock goes forward at 2:00, and back at 3:00: the wall clock counts.
        ("02:30-03:30 Europe/Berlin", "2026-03-29 03:15", {"offpeak": 1000}),
        ("02:30-03:00 Europe/Berlin", "2026-10-25 02:45", {"offpeak": 1000}),
        ("fri-mon 10:00-11:00 UTC", "2026-11-22 11:30", {"offpeak": 1000}),
    ],
)  # fmt: skip
def test_the_window_that_is_open_decides(windows: str, moment: str, found: dict[str, int]) -> None:
    assert open_ceilings(windows, at(moment)) == found
    limits = ceilings(SchedulerConf(ceiling_windows=windows), at(moment))
    assert limits[Category.OFFPEAK] == found.get("offpeak", 800)
    assert limits[Category.URGENT] == 1000


@pytest.mark.parametrize(
    "wrong",
    ["x", "22:00-06:00", "25:00-06:00 UTC", "22:61-23:00 UTC", "22:00-22:00 UTC", "22:00-06:00 Mars/Olympus",
     "22:00-06:00 UTC urgent=500", "22:00-06:00 UTC offpeak=1001", "someday 22:00-06:00 UTC", "22:00-06:00 ../etc"],
)  # fmt: skip
def test_what_is_wrong_is_refused_at_start(wrong: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        SchedulerConf(ceiling_windows=wrong)
    assert caught.value.field == "ceiling_windows"


@pytest.mark.parametrize("category", list(Category))
@pytest.mark.parametrize("used", range(11))
@pytest.mark.parametrize("share", ["equal", "fair", "dominant_resource"])
def test_below_its_ceiling_no_slot_stays_idle_while_work_waits(category: Category, used: int, share: str) -> None:
    conf = SchedulerConf()
    cell = [node(1, 10, exclusive_count={WorkKind.PROCESS: used})]
    work = [many(1, 20, category=category), many(2, 20, category=category)]
    plan = prioritize(snapshot(work, cell), conf, share_policy(share))
    ceiling = ceilings(conf, 0.0)[category]
    # Slots that are free while utilization, counted with each start, is below the ceiling.
    startable = sum(1 for taken in range(used, 10) if taken * 1000 < ceiling * 10)
    assert len(plan.decisions) == startable
    stopped = {reason for reason in plan.left.values() if reason is Reason.PEAK}
    assert bool(stopped) == (used + startable < 10 and category is not Category.URGENT)


def test_in_an_open_window_offpeak_work_takes_every_slot() -> None:
    conf = SchedulerConf(ceiling_windows="00:00-24:00 UTC")
    work = [many(1, 20, category=Category.OFFPEAK)]
    assert len(prioritize(snapshot(work, [node(1, 10)]), conf, share_policy("equal")).decisions) == 10
    usual = prioritize(snapshot(work, [node(1, 10)]), SchedulerConf(), share_policy("equal"))
    assert len(usual.decisions) == 8
