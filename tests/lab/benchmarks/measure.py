"""The measurement: one peer, one workload, the same steps in the same order for each."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.lab.benchmarks.account import Usage, load1, memory_mb, usage
from tests.lab.benchmarks.channel import Channel
from tests.lab.benchmarks.peer import Config, Peer, report

WARM_UP = 40
COLD = 6
"""So many lone tasks are the first that come one by one (two of each tenant), and stand by themselves."""
LOAD_S = 3.0
MOST_UNDER_LOAD = 20_000
SINGLES = 500
PROGRESS_S = 0.3


def main(peer: Peer) -> None:
    """Measure ``peer`` and report the result; what goes wrong stands in it."""
    report("RESULT", **Measurement(peer, peer.config).run())


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Median and tails in milliseconds, by the nearest rank."""
    ordered = sorted(seconds)

    def at(part: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1000, 2)

    return {
        "p50": at(0.5),
        "p95": at(0.95),
        "p99": at(0.99),
        "max": round(ordered[-1] * 1000, 2),
        "n": len(ordered),
    }


def tidy() -> None:
    """Have the garbage of what went before collected, and what stays left alone, as in a process that has run for long.

    One search through all a process has loaded takes a fifth of a second, and met one run and not the next.
    """
    gc.collect()
    gc.freeze()


class Measurement:
    """One run. Tasks are numbered in the order of submission; each number is used once."""

    def __init__(self, peer: Peer, config: Config) -> None:
        """Nothing is started yet."""
        self.peer = peer
        self.config = config
        slots = WARM_UP + config.tasks + COLD + config.idle_samples + MOST_UNDER_LOAD
        self.channel = Channel.create(Path(config.channel), slots)
        self.next = 0
        self._told = float("-inf")
        self.result: dict[str, Any] = {
            "peer": config.peer, "variant": config.variant, "version": peer.versions(), "workload": config.workload,
            "tasks": config.tasks, "concurrency": config.concurrency, "durable_pg": peer.durable,
            "load1_before": round(load1(), 2),
        }  # fmt: skip

    def run(self) -> dict[str, Any]:
        """Every step asked for; an error ends the run and is part of the result."""
        peer, wanted = self.peer, self.config.measures
        try:
            peer.setup()
            peer.reset()
            if "submit" in wanted:
                self._submission()
            for name, measure in peer.extra().items():
                if name in wanted:
                    report("PROGRESS", phase=name, done=0, of=1)
                    self.result.update(measure())
                    peer.reset()
            if {"e2e", "idle", "load50", "memory"} & set(wanted):
                self._with_workers(wanted)
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is the result of its run
            self.result["error"] = f"{type(error).__name__}: {error}"[:400]
        finally:
            peer.stop()
            peer.teardown()
        return self.result

    # -- submission alone ---------------------------------------------------------------------------------------------
    def _submission(self) -> None:
        """Submission while no worker runs: in bulk, and one by one."""
        peer, count = self.peer, self.config.tasks
        peer.submit_bulk(0, WARM_UP)
        tidy()
        before, began = usage(peer.roots()), time.monotonic()
        peer.submit_bulk(0, count)
        took = time.monotonic() - began
        spent = usage(peer.roots()).total - before.total
        self.result["submit_per_s"] = round(count / took, 1)
        self.result["submit_cpu_s_per_1k"] = round(spent / count * 1000, 4)
        singles = min(count, SINGLES)
        began = time.monotonic()
        for number in range(singles):
            peer.submit(number)
        self.result["submit_one_per_s"] = round(singles / (time.monotonic() - began), 1)
        peer.reset()

    # -- with workers -------------------------------------------------------------------------------------------------
    def _with_workers(self, wanted: Sequence[str]) -> None:
        peer = self.peer
        peer.start()
        began = time.monotonic()
        peer.submit_bulk(*self._take(WARM_UP))
        if not self._wait_ended(0, WARM_UP, 90, "warm-up"):
            raise RuntimeError(f"the warm-up did not finish; see {self.config.log}")
        self.result["worker_start_s"] = round(time.monotonic() - began, 2)
        self._wait_recorded(WARM_UP)
        time.sleep(0.7)
        if "e2e" in wanted:
            self._end_to_end()
        if "memory" in wanted:
            self.result["memory_mb"] = memory_mb(peer.roots())
        if "idle" in wanted:
            self._idle()
        if "load50" in wanted and (self.config.load_rate or self.result.get("tasks_per_s")):
            self._half_load(self.config.load_rate or self.result["tasks_per_s"] / 2)

    def _end_to_end(self) -> None:
        """From before the first submission to the last task recorded as finished."""
        peer, count = self.peer, self.config.tasks
        tidy()
        before, began = usage(peer.roots()), time.monotonic()
        first, end = self._take(count)
        peer.submit_bulk(first, end)
        submitted = time.monotonic()
        complete = self._wait_ended(first, end, self.config.timeout, self.config.workload)
        ended = time.monotonic()
        recorded = self._wait_recorded(end)
        over = time.monotonic()
        self.result.update(
            seconds=round(over - began, 3), tasks_per_s=round(count / (over - began), 1),
            submit_s=round(submitted - began, 3), fn_done_s=round(ended - began, 3), recorded=recorded,
            complete=complete and (recorded is None or recorded >= end),
        )  # fmt: skip
        self._account(before, usage(peer.roots()))

    def _account(self, before: Usage, after: Usage) -> None:
        per_1k = 1000 / self.config.tasks
        spent = {name: (s - before.by_name.get(name, 0.0)) * per_1k for name, s in after.by_name.items()}
        self.result.update(
            cpu_s_per_1k=round((after.total - before.total) * per_1k, 4),
            machine_cpu_s_per_1k=round((after.machine - before.machine) * per_1k, 4),
            cpu_by_process={name: round(s, 4) for name, s in sorted(spent.items(), key=lambda x: -x[1])},
        )

    def _idle(self) -> None:
        """From the call to the function's start, one task at a time, nothing else to do.

        The first of all are told apart: they open connections, plan statements and make what lasts.
        """
        latencies = []
        for done in range(COLD + self.config.idle_samples):
            time.sleep(random.uniform(0.01, 0.04))
            self._progress("latency when idle", done, COLD + self.config.idle_samples)
            number, end = self._take(1)
            called = time.monotonic()
            self.peer.submit(number)
            if not self._wait_ended(number, end, 30, "", poll=0.0005):
                raise RuntimeError("a lone task was lost")
            latencies.append(self.channel.begun(number) - called)
        self.result["lat_cold_ms"] = [round(seconds * 1000, 2) for seconds in latencies[:COLD]]
        self.result["lat_idle_ms"] = percentiles(latencies[COLD:])

    def _half_load(self, rate: float) -> None:
        """The same with arrivals at random (Poisson) at ``rate`` a second.

        What is due at once goes in one call, as no producer reaches such rates one by one; ``behind`` says how late
        the calls were by the plan of arrivals.
        """
        count = min(MOST_UNDER_LOAD, max(60, int(rate * LOAD_S)))
        first, end = self._take(count)
        due, called, behind = time.monotonic(), [0.0] * count, [0.0] * count
        arrivals = []
        for _ in range(count):
            due += random.expovariate(rate)
            arrivals.append(due)
        done = 0
        while done < count:
            self._progress("latency at half load", done, count)
            time.sleep(max(0.0, arrivals[done] - time.monotonic()))
            now, upto = time.monotonic(), done + 1
            while upto < count and arrivals[upto] <= now:
                upto += 1
            for n in range(done, upto):
                called[n], behind[n] = now, now - arrivals[n]
            if upto - done == 1:
                self.peer.submit(first + done)
            else:
                self.peer.submit_bulk(first + done, first + upto)
            done = upto
        if not self._wait_ended(first, end, 60, "latency at half load"):
            raise RuntimeError("tasks under half load were lost")
        latencies = [self.channel.begun(first + n) - called[n] for n in range(count)]
        late = percentiles(behind)
        self.result["lat_load50_ms"] = {
            **percentiles(latencies),
            "rate": round(rate),
            "behind_p99": late["p99"],
        }

    # -- waiting ------------------------------------------------------------------------------------------------------
    def _take(self, count: int) -> tuple[int, int]:
        first = self.next
        self.next += count
        return first, self.next

    def _wait_ended(self, first: int, end: int, timeout: float, phase: str, poll: float = 0.005) -> bool:
        ended, at, deadline = self.channel.times, first, time.monotonic() + timeout
        while True:
            while at < end and ended[2 * at + 1]:
                at += 1
            if at >= end:
                return True
            if time.monotonic() > deadline:
                return False
            if phase:
                self._progress(phase, at - first, end - first)
            time.sleep(poll)

    def _wait_recorded(self, wanted: int) -> int | None:
        """The peer's own count once it has reached ``wanted``, or what it is when the time is up."""
        deadline = time.monotonic() + 120
        while True:
            asked = time.monotonic()
            count = self.peer.recorded()
            if count is None or count >= wanted or asked > deadline:
                return count
            time.sleep(max(0.002, 4 * (time.monotonic() - asked)))  # counting must not become the load

    def _progress(self, phase: str, done: int, of: int) -> None:
        if time.monotonic() - self._told >= PROGRESS_S:
            self._told = time.monotonic()
            report("PROGRESS", phase=phase, done=done, of=of)
