"""Hostile scripts as data, and what became of each."""

from __future__ import annotations

import os
import re
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Finished, ScriptWork, Started
from scheduler_ext.sandbox.base import Level
from scheduler_ext.sandbox.container import ContainerSlot
from scheduler_ext.sandbox.pool import SlotPool
from scheduler_ext.worker.agent.scripts import ScriptRun
from slackwater.settings.place import ROOT
from tests.lab.sandbox_score.targets import Targets

FOLDER = ROOT / "tests" / "sandbox"
VECTOR = (1_000, 128, 32, 0, 0, 0)
CAP_MS = 1_000
LONG_CAP_MS = 12_000
LATE_S = 3.0
"""A script must have ended this long after its cap."""
CLEARED_S = 5.0
"""So long after it ended its slot must be empty."""
_HEAD = re.compile(r"^# (attack|expect|plain|needs): (.+)$", re.MULTILINE)
_EXCEEDED = frozenset({"memory", "disk", "processes", "output"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """One attack."""

    name: str
    content: bytes
    attack: str
    expect: str
    escapes_plainly: bool
    """It succeeds without a sandbox, and may be tried there."""
    needs: str = ""
    """``groups``: contained only where there are control groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one at one level."""

    name: str
    level: str
    expect: str
    contained: bool
    why: str
    """How it ended, or what it did."""
    seconds: float
    finished: Finished
    output: str


def load(folder: Path = FOLDER) -> list[Hostile]:
    """All attacks, by name; ``ValueError`` names a file without a proper head."""
    prelude = (folder / "prelude.py").read_bytes()
    found = []
    for path in sorted((*folder.glob("*.py"), *folder.glob("*.sh"))):
        if path.name in {"prelude.py", "__init__.py"}:
            continue
        head = dict(_HEAD.findall(path.read_text()))
        if "attack" not in head or head.get("expect") not in {"refused", "cap", "fault", *_EXCEEDED}:
            raise ValueError(f"{path.name}: its head must say what it attacks and what to expect")
        content = path.read_bytes()
        if path.suffix == ".py":
            content = b"#!/usr/bin/python3\n" + prelude + content
        found.append(Hostile(
            name=path.stem, content=content, attack=head["attack"], expect=head["expect"],
            escapes_plainly=head.get("plain") == "escapes", needs=head.get("needs", ""),
        ))  # fmt: skip
    return found


def settings(level: Level, like: SchedulerConf | None = None) -> SchedulerConf:
    """Small limits, so that reaching them takes little time; the runner is that of ``like``."""
    return SchedulerConf(
        sandbox=level,
        runner=like.runner if like else "",
        runner_token_file=like.runner_token_file if like else "",
        script_processes=64,
        script_files=2_000,
        script_output_bytes=4 << 20,
        cancel_grace_s=0.5,
    )


async def attack(pool: SlotPool, hostile: Hostile, against: Targets, root: Path) -> Verdict:
    """Run one as a script of a tenant nobody vouches for; at the plain level as one of a trusted tenant."""
    level = Level(pool.level)
    task = Started(
        str(uuid.uuid4()), 1, 1, "", "", "", [], against.described(root),
        CAP_MS if hostile.expect == "cap" else LONG_CAP_MS, 1, hostile.name,
    )  # fmt: skip
    work = ScriptWork(content=hostile.content, folder="", trusted=not level.contains_untrusted, vector=VECTOR)
    run = ScriptRun(pool.conf, task, work, pool, root, {})
    began = time.monotonic()
    finished = await run.run()
    seconds = time.monotonic() - began
    output = run.said["stdout"] + run.said["stderr"]
    why = _fault(hostile, finished, output, seconds, counted=_counted(pool)) or against.harmed() or _left(pool, root)
    return Verdict(
        name=hostile.name, level=level, expect=hostile.expect, contained=not why,
        why=why or _told(finished, output), seconds=seconds, finished=finished, output=output,
    )  # fmt: skip


def _counted(pool: SlotPool) -> bool:
    """Whether control groups count what its scripts use."""
    return any(one.groups for one in pool.found if one.level == pool.level)


def _fault(hostile: Hostile, finished: Finished, output: str, seconds: float, *, counted: bool) -> str:
    """What did not go as it must; empty when all did.

    Without control groups it is looked at from time to time: what is stopped at a limit in between is contained, but
    the client is told how it ended instead of what it wanted too much of.
    """
    escaped = [line for line in output.splitlines() if line.startswith("ESCAPED")]
    if escaped:
        return "; ".join(escaped)
    error = finished.error or ""
    ended = f"it ended as {finished.outcome.name.lower()}: {error or output[-300:]}"
    match hostile.expect:
        case "refused" if not counted and error.startswith("disk"):
            ok = finished.outcome is Outcome.RESOURCE_EXCEEDED  # a folder that cannot be measured counts as full
        case "refused":
            ok = finished.outcome is Outcome.SUCCEEDED and "refused" in output
        case "cap":
            ok = finished.outcome is Outcome.CAP_EXCEEDED and seconds < CAP_MS / 1000 + LATE_S
        case "fault":
            ok = finished.outcome is Outcome.FAILED and "result" in error
        case "memory" if hostile.needs == "groups" and not counted:
            ok = finished.outcome is Outcome.FAILED
        case "processes" if not counted and finished.outcome is not Outcome.RESOURCE_EXCEEDED:
            ok = finished.outcome in {Outcome.CAP_EXCEEDED, Outcome.FAILED}
        case what:
            ok = finished.outcome is Outcome.RESOURCE_EXCEEDED and error.startswith(what)
    return "" if ok else ended


def _left(pool: SlotPool, root: Path) -> str:
    """What a script left behind: processes below its keeper (one waits for the next script), or files.

    The keeper tells how a script ended before it clears up.
    """
    until = time.monotonic() + CLEARED_S
    while (found := _still_there(pool, root)) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def _still_there(pool: SlotPool, root: Path) -> str:
    for slot in pool.slots():
        if isinstance(slot, ContainerSlot):
            continue  # a container goes as a whole; what lived on would be found by its mark
        if slot.process is None or slot.process.poll() is not None:
            return "its keeper was killed"
        below = psutil.Process(slot.process.pid).children(recursive=True)
        if len(below) > 1:
            return f"{len(below) - 1} processes are left"
    files = [f"{folder}/{name}" for folder, _, names in os.walk(root) for name in names]
    return f"files are left: {files[:3]}" if files else ""


def _told(finished: Finished, output: str) -> str:
    if finished.error:
        return finished.error
    refused = sum(line.startswith("refused") for line in output.splitlines())
    return f"{refused} attempts refused" if refused > 1 else "refused"
