"""Scenarios with real processes: shares, quotas, urgent work, refusals and losses as the platform meets them."""

from collections.abc import Callable

from tests.lab.benchmarks.live import (
    drain,
    fairness,
    flushall,
    graphs,
    limiter,
    million,
    neighbours,
    output,
    quota,
    rest,
    starts,
    urgent,
    way,
)

LIVE: dict[str, Callable[..., None]] = {
    "quota": quota.run,
    "fairness": fairness.run,
    "urgent": urgent.run,
    "limiter": limiter.run,
    "flushall": flushall.run,
    "drain": drain.run,
    "million": million.run,
    "neighbours": neighbours.run,
    "starts": starts.run,
    "way": way.run,
    "output": output.run,
    "graphs": graphs.run,
    "rest": rest.run,
}
