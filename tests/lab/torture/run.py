"""One torture run from its start to its verdict."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.torture import faults, record
from tests.lab.torture.attacker import Attacker
from tests.lab.torture.clients import Client, Crowd, Tally
from tests.lab.torture.cluster import Cluster
from tests.lab.torture.judge import Side, Verdict, judge
from tests.lab.torture.ledger import Claim, Ledger
from tests.lab.torture.workload import Expected, Submission, workload

SETTLE_S = 60.0
"""A fault whose damage is not mended by then counts as not recovered."""
DRAIN_S = 120.0
"""What is not final so long after the last fault is stuck."""
READY_S = 60.0
SCHEDULES = 3
TOLD = 5
"""Tasks at fault whose story is told."""
LOOK_S = 0.05
TOGETHER = 0.2
"""Share of faults that are injected right after another, into a platform that is still mending."""
VICTIM_S = 10.0
"""So long a fault waits for somebody to strike: whom it needs may not be back from the one before."""
FAULT_S = 5.0
"""Seconds a fault takes on the average: the workload is spread over the run by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a run is asked for."""

    tasks: int
    faults: int
    seed: int
    nodes: int = 2
    concurrency: int = 2
    only: tuple[str, ...] = ()
    """Kinds of faults; empty: all."""
    attacker: bool = False
    """Somebody writes to Redis meanwhile."""
    conf: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Recovery:
    """How long the platform took to mend one fault; ``None``: it did not."""

    kind: str
    victim: str
    at: float
    seconds: float | None


@dataclass(slots=True)
class Result:
    """All that is known after a run."""

    options: Options
    verdict: Verdict
    side: Side
    recoveries: list[Recovery]
    submitting: Tally
    asking: Tally
    crashes: Counter[str]
    seconds: float
    stuck: list[tuple[object, ...]]
    refused: list[str]
    stories: dict[str, list[str]] = field(default_factory=dict)
    """Of some tasks at fault: what the ledger and the witness say of it."""
    attacks: Counter[str] = field(default_factory=Counter)
    """What was forged or broken in Redis, by name."""

    def injected(self) -> Counter[str]:
        """Faults by kind."""
        return Counter(recovery.kind for recovery in self.recoveries)

    def clean(self) -> bool:
        """Whether nothing was lost, doubled or left unmended."""
        return self.verdict.clean() and not self.refused and all(r.seconds is not None for r in self.recoveries)


class Torture:
    """Runs a workload on a cluster and injects faults."""

    def __init__(self, cluster: Cluster, folder: Path, options: Options, say: Callable[[str], None]) -> None:
        """``folder`` takes the record; ``say`` is told what happens."""
        self.cluster, self.folder, self.options, self.say = cluster, folder, options, say
        self.rng = random.Random(options.seed)
        self.ledger = Ledger(cluster.postgres.url)
        self.injector = faults.Injector(cluster, random.Random(options.seed + 1))
        for name in (record.EFFECTS, record.GUARDED):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.key = cluster.key()
        pace = options.faults * FAULT_S / max(1, options.tasks) * 1.6
        submissions = workload(options.tasks, options.seed, str(folder))
        self.crowd = Crowd(self.client, submissions, pace, options.seed)
        self.client_of_canaries = self.client()
        self._canaries = 0
        self.cuts: list[tuple[float, float]] = []
        """From when to when a worker was cut off, by the monotonic clock."""

    def client(self) -> Client:
        """A client of its own for a thread."""
        return Client(self.cluster.ports, self.key)

    def run(self) -> Result:
        """All of it."""
        began = time.monotonic()
        self.ledger.prepare()
        give_up = began + READY_S
        while not self._has_started() and time.monotonic() < give_up:
            time.sleep(LOOK_S)
        if self.mend(None, set()) is None:
            raise RuntimeError("the platform did not begin to work")
        self._schedules()
        self.say("the platform works; the faults begin")
        self.crowd.start()
        attacker = Attacker(self.cluster.redis.url, self.options.seed + 2) if self.options.attacker else None
        with attacker or contextlib.nullcontext():
            recoveries = self._faults(attacker.check if attacker else lambda: None)
        give_up = time.monotonic() + DRAIN_S
        while self.crowd.busy() and time.monotonic() < give_up:
            time.sleep(LOOK_S)
        # What still fired while the witnesses are read would be held against one that was read before.
        while (self._scheduled or self.ledger.unfinished() != 0) and time.monotonic() < give_up:
            self._stop_schedules()
            time.sleep(LOOK_S)
        self.crowd.stop()
        stuck = self.ledger.stuck()
        lives = record.read(self.folder)
        outside = {path.name: record.done_outside(self.folder, path.name) for path in self._effects()}
        acts = record.acts(self.folder)
        refused_acts = sum(not one.taken for asked in acts.values() for one in asked)
        self.say(f"receivers of keys took {sum(map(len, acts.values())) - refused_acts} acts, refused {refused_acts}")
        truth = self.ledger.truth()
        verdict, side = judge(self.crowd.accepted, truth, lives, outside, self.cuts, acts)
        refused = [f"{s.path} {status} {answer}" for s, status, answer in self.crowd.refused]
        stories = {
            task_id: [*self.ledger.story(task_id), *(str(life) for life in lives.get(task_id, ()))]
            for task_id in [one for one in verdict.named() if one in truth.tasks][:TOLD]
        }
        self.ledger.close()
        return Result(
            self.options, verdict, side, recoveries, self.crowd.submitting, self.crowd.asking, self.cluster.crashes,
            time.monotonic() - began, list(stuck), refused, stories, attacker.sent if attacker else Counter(),
        )  # fmt: skip

    def _has_started(self) -> bool:
        """Whether there are handlers and submitters: an operation that waits for the first start is none that failed."""
        return self.ledger.exported("torture.%") > 0 and all(map(self.cluster.answers, self.cluster.ports))

    def _effects(self) -> list[Path]:
        return list((self.folder / record.EFFECTS).iterdir())

    # -- schedules ----------------------------------------------------------------------------------------------------
    def _schedules(self) -> None:
        task = {"handler": "torture.short", "args": [str(self.folder)], "total_attempts": 10}
        self._scheduled = []
        for number in range(SCHEDULES):
            body = {
                "name": f"every second {number}",
                "kind": "interval",
                "rule": {"every_s": 1},
                "task": task,
            }
            status, answer = self.client_of_canaries.call("POST", "/schedules", body)
            if status != 201:
                raise RuntimeError(f"the schedule was refused: {status} {answer}")
            self._scheduled.append(answer["id"])

    def _stop_schedules(self) -> None:
        for schedule_id in list(self._scheduled):
            status, _ = self.client_of_canaries.call("PATCH", f"/schedules/{schedule_id}", {"paused": True})
            if status == 200:
                self._scheduled.remove(schedule_id)

    # -- faults -------------------------------------------------------------------------------------------------------
    def _faults(self, check: Callable[[], None]) -> list[Recovery]:
        """Inject them all; ``check`` is asked before each whether the run still shows anything."""
        recoveries = []
        without = (() if self.cluster.links else faults.LINKS) + (() if self.cluster.clocks else faults.CLOCKS)
        kinds = faults.plan(self.options.faults, self.rng, without)
        if self.options.only:
            kinds = [self.options.only[n % len(self.options.only)] for n in range(self.options.faults)]
        began = time.monotonic()
        for kind in kinds:
            check()
            injected, flying = self._inject(kind)
            if injected is None:
                self.say(f"{kind}: nobody there")
                continue
            if kind in faults.CUTS:
                self.cuts.append((injected.at, time.monotonic()))
            seconds: float | None = 0.0
            if self.rng.random() >= TOGETHER:
                seconds = self.mend(injected.over, flying)
                recoveries.append(Recovery(kind, injected.victim, injected.at - began, seconds))
                self.say(f"{kind} ({injected.victim}): " + ("NOT MENDED" if seconds is None else f"{seconds:.2f} s"))
                time.sleep(self.rng.uniform(0.0, 1.0))
            else:
                self.say(f"{kind} ({injected.victim}), and at once the next")
                recoveries.append(Recovery(kind, injected.victim, injected.at - began, 0.0))
        return recoveries

    def _inject(self, kind: str) -> tuple[faults.Injected | None, set[Claim]]:
        """Inject a fault, and what was in flight then; whom it needs may be about to come back from the one before."""
        give_up = time.monotonic() + VICTIM_S
        while True:
            flying = self.ledger.in_flight() or set()
            try:
                return self.injector.inject(kind), flying
            except faults.NoVictim:
                if time.monotonic() > give_up:
                    return None, flying
                time.sleep(LOOK_S)

    def mend(self, over: float | None, flying: set[Claim]) -> float | None:
        """Seconds until what was in flight has moved on and a task submitted since has succeeded."""
        since = over if over is not None else time.monotonic()
        give_up = time.monotonic() + (SETTLE_S if over is not None else READY_S)
        canary = ""
        while time.monotonic() < give_up:
            if not canary:
                canary = self._canary()
            still = self.ledger.in_flight()
            if canary and still is not None and not (still & flying) and self.ledger.final(canary):
                return time.monotonic() - since
            time.sleep(LOOK_S)
        return None

    def _canary(self) -> str:
        self._canaries += 1
        body = {
            "handler": "torture.short",
            "args": [str(self.folder)],
            "category": "urgent",
            "total_attempts": 10,
        }
        submission = Submission(
            number=1_000_000 + self._canaries, path="/tasks", body=body, expected=(Expected(kind="canary"),)
        )
        before = len(self.crowd.accepted)
        self.crowd.hand_in(self.client_of_canaries, submission)
        for accepted in self.crowd.accepted[before:]:
            if accepted.submission is submission:
                return accepted.task_ids[0]
        return ""
