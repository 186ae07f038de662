"""Which level of containment a machine offers, and what is refused without one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.states import Outcome
from scheduler_ext.sandbox import seccomp
from scheduler_ext.sandbox.base import Found, Level, Refused
from scheduler_ext.sandbox.detect import choose
from scheduler_ext.sandbox.pool import SlotPool
from slackwater_tasks.checks import messages
from tests.support.bench import CONF, Bench


# -- what a node without a sandbox does ------------------------------------------------------------------------------
def nothing_works(wanted: str = "auto") -> SlotPool:
    pool = SlotPool(dataclasses.replace(CONF, sandbox=wanted))
    pool.__dict__["found"] = (
        Found(level=Level.BUBBLEWRAP, works=False, why="there is no bwrap on this machine"),
        Found(level=Level.LANDLOCK, works=False, why="the kernel offers Landlock 0, 6 is needed"),
        Found(level=Level.PROCESS, works=True),
    )
    return pool


def test_without_a_sandbox_only_trusted_scripts_run(root: Path, folder: None) -> None:
    pool = nothing_works()
    bench = Bench(pool, root / "process")
    assert pool.level == Level.PROCESS
    refused, output = bench.run("echo never", trusted=False)
    assert (refused.outcome, output) == (Outcome.FAILED, "")
    assert "scripts of trusted tenants only" in (refused.error or "")
    assert "there is no bwrap on this machine" in (refused.error or "")
    assert bench.run("echo fine", trusted=True)[1] == "fine\n"
    pool.close()


def test_trusted_scripts_may_run_plainly_where_the_operator_says_so(root: Path) -> None:
    pool = SlotPool(dataclasses.replace(CONF, trusted_scripts="plain"))
    if not Level(pool.level).contains_untrusted:
        pytest.skip("this machine offers no sandbox")
    assert pool.found[-1].level == pool.level, "what is weaker than the level that is taken need not be tried"
    assert pool.take(root, trusted=True).level is Level.PROCESS
    assert pool.take(root, trusted=False).level == pool.level


def test_a_level_that_is_asked_for_and_missing_is_not_replaced_by_a_weaker_sandbox() -> None:
    found = (Found(level=Level.BUBBLEWRAP, works=False), Found(level=Level.LANDLOCK, works=True))
    assert choose(found, "auto") is Level.LANDLOCK
    assert choose(found, "bubblewrap") is Level.PROCESS
    pool = nothing_works("landlock")
    with pytest.raises(Refused):
        pool.take(Path("/nowhere"), trusted=False)
    with pytest.raises(ConfigurationError, match="must be one of auto, container"):
        SchedulerConf(sandbox="docker")


def test_the_check_says_which_level_there_is() -> None:
    none = messages(nothing_works().found, "auto")
    assert [one.id for one in none] == ["slackwater.W010"]
    assert "there is no bwrap" in str(none[0].hint)
    some = (Found(level=Level.LANDLOCK, works=True),)
    assert [one.id for one in messages(some, "auto")] == [
        "slackwater.I010",
        "slackwater.I011",
        "slackwater.W011",
    ]
    best = (Found(level=Level.BUBBLEWRAP, works=True, groups="v2"),)
    assert [one.id for one in messages(best, "auto")] == ["slackwater.I010", "slackwater.I011"]
    whole = dataclasses.replace(best[0], bandwidth=True)
    assert "IOPS of a tier" in messages((whole,), "auto")[1].msg
    whole = dataclasses.replace(whole, iops=True)
    assert whole.enforced == ("cpu", "memory", "disk", "iops", "bandwidth")
    assert [one.id for one in messages((whole,), "auto")] == ["slackwater.I010"]


def test_the_filter_knows_both_machines_and_no_other() -> None:
    intel = seccomp.program(network=False, strict=False, machine="x86_64")
    arm = seccomp.program(network=False, strict=False, machine="aarch64")
    assert len(intel) % 8 == len(arm) % 8 == 0
    assert intel != arm
    assert len(seccomp.program(network=True, strict=True, counted=False)) > len(intel)
    with pytest.raises(LookupError, match="riscv64"):
        seccomp.program(network=False, strict=False, machine="riscv64")
