"""How many examples a property is tried with: at most a hundred in `make test`, ten times as many in `make test-slow`."""

import os

from hypothesis import HealthCheck, settings

THOROUGH = 10
QUICK = 100


def _times() -> int:
    return THOROUGH if os.environ.get("SLACKWATER_TEST_EXAMPLES") == "thorough" else 1


def load() -> None:
    """Make these the defaults. What a busy machine makes of an example's time says nothing of the code."""
    settings.register_profile(
        "slackwater", deadline=None, max_examples=QUICK * _times(), suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("slackwater")


def fewer(examples: int) -> settings:
    """For a property whose examples are dear: so many instead of a hundred, and as many times more when thorough."""
    return settings(max_examples=examples * _times())
