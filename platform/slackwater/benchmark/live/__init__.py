"""Scenarios with real processes: shares, quotas, urgent work and refusals as the platform runs them."""

from collections.abc import Callable

from slackwater.benchmark.live import fairness, limiter, quota, urgent

LIVE: dict[str, Callable[..., None]] = {
    "quota": quota.run,
    "fairness": fairness.run,
    "urgent": urgent.run,
    "limiter": limiter.run,
}
