"""Where the time goes between a call and its function's first line: of a lone task, and of one of many at half load."""

from __future__ import annotations

import os
import statistics
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from slackwater_conf import conf
from tests.lab.benchmarks.channel import CHANNEL_FILE
from tests.lab.benchmarks.measure import WARM_UP, Measurement
from tests.lab.benchmarks.own import Slackwater
from tests.lab.benchmarks.peer import Config, report
from tests.lab.benchmarks.probe.sitecustomize import FOLDER

PROBE = Path(__file__).resolve().parent.parent / "probe"
WAY: Mapping[str, str] = {
    "submit": "submitting: stored, claimed and pushed to its node (at half load all that is due in one call)",
    "take": "a child has the claim",
    "start": "… has started the task",
    "first line": "the function's first line",
}
"""What a lone task waits for, in order, where room was given ahead."""
BESIDE: Mapping[str, str] = {
    "snapshot": "a round: reading its snapshot",
    "prioritize": "a round: deciding",
    "claim": "a round: claiming",
    "publish": "a round: publishing",
    "round": "a whole round",
    "run": "running a batch",
    "record": "recording a batch",
}


class Call(NamedTuple):
    """A step that was gone, in seconds of CLOCK_MONOTONIC."""

    began: float
    ended: float


class Watched(Slackwater):
    """The platform with the probe in its processes."""

    def __init__(self, config: Config, folder: str) -> None:
        """``folder``: where the probe writes."""
        super().__init__(config)
        self.folder = folder
        self.calls: list[Call] = []

    def environment(self) -> dict[str, str]:
        """With the probe before all else."""
        env = super().environment()
        return {**env, FOLDER: self.folder, "PYTHONPATH": os.pathsep.join([str(PROBE), env["PYTHONPATH"]])}

    def submit(self, number: int) -> None:
        """As ever, noted."""
        began = time.monotonic()
        super().submit(number)
        self.calls.append(Call(began, time.monotonic()))

    def submit_bulk(self, first: int, end: int) -> None:
        """As ever, noted."""
        began = time.monotonic()
        super().submit_bulk(first, end)
        self.calls.append(Call(began, time.monotonic()))


class Two(Measurement):
    """The two measurements of latency; remembers when the second began."""

    loaded = float("inf")

    def _half_load(self, rate: float) -> None:
        self.loaded = time.monotonic()
        super()._half_load(rate)


def run(lone: int, per_s: int, children: int) -> None:
    """``lone`` tasks one after the other; then ``per_s`` a second at random."""
    with TemporaryDirectory() as folder:
        config = Config(
            peer="slackwater", tasks=0, concurrency=children, measures=("idle", "load50"), idle_samples=lone,
            load_rate=per_s, channel=str(Path(conf().var) / CHANNEL_FILE), log=str(Path(conf().var) / "way.log"),
        )  # fmt: skip
        peer = Watched(config, folder)
        found = Two(peer, config)
        result = found.run()
        if "error" in result:
            raise RuntimeError(result["error"])
        steps = {**read(Path(folder)), "submit": peer.calls}
    alone = [call for call in peer.calls if call.ended < found.loaded][1:]  # the first is the warm-up's
    begun = [found.channel.begun(WARM_UP + n) for n in range(len(alone))]
    loaded = {name: [call for call in calls if call.began > found.loaded] for name, calls in steps.items()}
    last = max(call.ended for call in loaded["start"]) - found.loaded
    before = 0.0
    for name, at in milestones(alone, begun, steps).items():
        report(
            "RESULT", step=WAY[name], at_ms=at, lone_ms=round(at - before, 2), **durations(loaded.get(name, ()), last)
        )
        before = at
    for name, title in BESIDE.items():
        report("RESULT", step=title, at_ms="", lone_ms="", **durations(loaded[name], last))
    report(
        "RESULT", step="call to first line", at_ms=result["lat_idle_ms"]["p50"], lone_ms="",
        half_ms=result["lat_load50_ms"]["p50"], half_p95_ms=result["lat_load50_ms"]["p95"], half_per_s=per_s,
    )  # fmt: skip


def read(folder: Path) -> dict[str, list[Call]]:
    """The steps that the probe has noted, each in order of its end."""
    steps: dict[str, list[Call]] = defaultdict(list)
    for file in folder.iterdir():
        for line in file.read_text().splitlines():
            began, ended, step = line.split()
            steps[step].append(Call(int(began) / 1e9, int(ended) / 1e9))
    return {name: sorted(calls, key=lambda call: call.ended) for name, calls in steps.items()}


def milestones(calls: Sequence[Call], begun: Sequence[float], steps: Mapping[str, Sequence[Call]]) -> dict[str, float]:
    """By step: when it was over after the call of a lone task, the median in milliseconds."""
    after: dict[str, list[float]] = {name: [] for name in WAY}
    ends = {name: [call.ended for call in steps.get(name, ())] for name in WAY}
    for call, first_line in zip(calls, begun, strict=True):
        for name in WAY:
            at = bisect_left(ends[name], call.began)
            if at < len(ends[name]) and ends[name][at] <= first_line:
                after[name].append(ends[name][at] - call.began)
        after["first line"].append(first_line - call.began)
    return {name: round(statistics.median(seconds) * 1000, 2) for name, seconds in after.items() if seconds}


def durations(calls: Sequence[Call], seconds: float) -> dict[str, float | str]:
    """How long a step took, and how often there was one."""
    if not calls:
        return {"half_ms": "", "half_p95_ms": "", "half_per_s": ""}
    took = sorted(call.ended - call.began for call in calls)
    return {
        "half_ms": round(statistics.median(took) * 1000, 2),
        "half_p95_ms": round(took[int(0.95 * len(took))] * 1000, 2),
        "half_per_s": round(len(took) / seconds),
    }
