"""How many examples a property is tried with: at most 25 in `make test`, forty times as many in `make test-slow`."""

import os

from hypothesis import HealthCheck, settings

TIMES = {"": 0.25, "thorough": 10.0}
EXAMPLES = 100


def _count(examples: int) -> int:
    return max(1, int(examples * TIMES[os.environ.get("SLACKWATER_TEST_EXAMPLES", "")]))


def load() -> None:
    """Make these the defaults. What a busy machine makes of an example's time says nothing of the code."""
    settings.register_profile(
        "slackwater", deadline=None, max_examples=_count(EXAMPLES), suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("slackwater")


def fewer(examples: int) -> settings:
    """For a property whose examples are dear: so many instead of a hundred, and as many times more or fewer."""
    return settings(max_examples=_count(examples))
