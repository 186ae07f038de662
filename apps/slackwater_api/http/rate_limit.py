"""``RateLimit`` and ``RateLimit-Policy``, as draft-ietf-httpapi-ratelimit-headers-10 has them: lists of structured fields.

Every answer to a submission that was counted has them, and every 429. Two policies are told: ``submissions``, the rate
(``q`` at once, which come back in ``w`` seconds), and ``waiting``, the tasks that may be unfinished (``q``).
"""

from __future__ import annotations

import math
from typing import Final

from scheduler_ext.core.errors import LimitExceeded, QuotaExceeded
from slackwater_tasks.submission.limits import Left

HEADERS: Final = ("RateLimit", "RateLimit-Policy")
RATE, WAITING, URGENT = "submissions", "waiting", "urgent"


def headers(left: Left | None) -> dict[str, str]:
    """What is left after a submission; nothing where none was counted."""
    if left is None:
        return {}
    plan, soon = left.plan, max(1, math.ceil(left.more_in_s))
    return {
        "RateLimit": f'"{RATE}";r={left.rate};t={soon}, "{WAITING}";r={left.waiting}',
        "RateLimit-Policy": f'{_rate(plan.burst, plan.tasks_per_hour)}, "{WAITING}";q={plan.max_waiting}',
    }


def refused(error: LimitExceeded, seconds: int) -> dict[str, str]:
    """The limit that was met; more is left of it in so many seconds."""
    limit, burst, left = error.extra.get("limit"), error.extra.get("burst"), error.extra.get("available", 0)
    if not isinstance(error, QuotaExceeded):
        policy = {"RateLimit-Policy": _rate(burst, limit)} if limit and burst else {}
        return {"RateLimit": f'"{RATE}";r={left};t={seconds}', **policy}
    name = URGENT if error.field else WAITING
    policy = {} if error.field else {"RateLimit-Policy": f'"{WAITING}";q={limit}'}
    return {"RateLimit": f'"{name}";r={left};t={seconds}', **policy}


def _rate(burst: int, per_hour: int) -> str:
    return f'"{RATE}";q={burst};w={max(1, round(burst * 3600 / per_hour))}'
