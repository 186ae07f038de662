"""Scenarios with real workers whose tasks sleep: shares, quotas and urgent work as the platform runs them."""

from collections.abc import Callable

from slackwater.benchmark.live import fairness, quota, urgent

LIVE: dict[str, Callable[..., None]] = {
    "quota": quota.run,
    "fairness": fairness.run,
    "urgent": urgent.run,
}
