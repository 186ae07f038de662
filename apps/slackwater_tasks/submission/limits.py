"""The limits of a tenant's plan: for each task, and for all together (how many may wait, how many come in an hour)."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from scheduler_ext.core.errors import InvalidInput, LimitExceeded, NoTenant, NotGranted, QuotaExceeded, TooLarge
from scheduler_ext.core.states import Category
from slackwater_tasks.ledger import transitions
from slackwater_tasks.ledger.sql.store import Count
from slackwater_tenants.models import Plan, Tenant
from slackwater_tenants.services import is_granted

URGENT_FREE: Final = 100
"""How many urgent tasks a tenant may always have, whatever its plan's share of urgent work."""
WHY: Final = """
SELECT unfinished, urgent_unfinished,
    extract(epoch FROM greatest(coalesce(theoretical_arrival, clock_timestamp()), clock_timestamp())
        - clock_timestamp())::float8
FROM slackwater_tenants_currentcounter WHERE tenant_id = $1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a tenant's plan still allows after a counted submission."""

    rate: int
    """How many submissions would be accepted at once."""
    more_in_s: float
    """Seconds until there is room for one more."""
    waiting: int
    """How many more tasks may wait."""
    plan: Plan


class _Noted(threading.local):
    """What this thread was told last, by tenant: its plan, how many are unfinished, and how far ahead its rate is."""

    def __init__(self) -> None:
        self.left: dict[int, tuple[Plan, int, float]] = {}


noted = _Noted()


def note(tenant: Tenant, unfinished: int, ahead_s: float) -> None:
    """Note the raised counters, for the answer that this thread gives."""
    noted.left[tenant.pk] = (tenant.plan, unfinished, ahead_s)


def left_of(tenant_id: int) -> Left | None:
    """What this thread was told last that a tenant's plan still allows."""
    told = noted.left.get(tenant_id)
    if told is None:
        return None
    plan, unfinished, ahead_s = told
    rate, more_in_s = room(plan, ahead_s)
    return Left(rate=rate, more_in_s=more_in_s, waiting=max(0, plan.max_waiting - unfinished), plan=plan)


def room(plan: Plan, ahead_s: float) -> tuple[int, float]:
    """How many submissions the rate would accept at once, and the seconds until it is one more.

    ``ahead_s``: until the bucket is full again.
    """
    step = 3600.0 / plan.tasks_per_hour
    used = max(0, math.ceil(ahead_s / step))
    return max(0, plan.burst - used), ahead_s - (used - 1) * step if used else 0.0


def window_s(burst: int, per_hour: int) -> int:
    """The whole seconds in which a burst is available again."""
    return max(1, round(burst * 3600 / per_hour))


def count_of(tenant: Tenant, *, n: int, urgent: int, charged: int) -> Count:
    """How ``n`` tasks are counted, of which ``charged`` count against the rate.

    Raises :class:`TooLarge` for more at once than the plan's burst.
    """
    plan = tenant.plan
    if charged > plan.burst or not plan.tasks_per_hour:
        allowed = plan.burst if plan.tasks_per_hour else 0
        raise TooLarge(f"the plan allows {allowed} submissions at once, these are {charged}", field="tasks")
    permille = min(1000, plan.max_urgent_permille)
    free = n + 10**12 if permille == 1000 else (URGENT_FREE if permille else 0)
    return Count(
        tenant=tenant.pk,
        n=n,
        urgent=urgent,
        most=plan.max_waiting,
        step=3600.0 / plan.tasks_per_hour,
        burst=plan.burst,
        charged=charged,
        permille=permille,
        urgent_free=free,
    )


def count_in(cur: Any, tenant: Tenant, count: Count) -> None:
    """Raise the tenant's counters, last in the transaction. Takes a prepared cursor; raises as :func:`refuse` does."""
    if not transitions.count_if_allowed(cur, [count]):
        refuse(cur, tenant, count)


def refuse(cur: Any, tenant: Tenant, count: Count) -> NoReturn:
    """Say which limit the counters met; the caller's transaction is rolled back with it.

    Raises :class:`LimitExceeded` (the rate, with the seconds to wait) or :class:`QuotaExceeded`; :class:`NoTenant` where
    the tenant was removed.
    """
    plan = tenant.plan
    counted = cur.execute(WHY, (tenant.pk,)).fetchone()
    if counted is None:
        raise NoTenant(f"there is no tenant {tenant.slug!r} any more")
    unfinished, urgent, ahead_s = counted
    wait = ahead_s + (count.charged - plan.burst) * count.step
    if wait > 0:
        available = room(plan, ahead_s)[0]
        raise LimitExceeded(retry_after=wait, limit=plan.tasks_per_hour, burst=plan.burst, available=available)
    most_urgent = max(count.urgent_free, (unfinished + count.n) * count.permille // 1000)
    if unfinished + count.n <= plan.max_waiting and count.urgent and urgent + count.urgent > most_urgent:
        raise QuotaExceeded(
            f"the plan allows {count.permille / 10:g} % of the tasks waiting to be urgent",
            field="category",
            limit=count.permille,
        )
    # Also where enough have ended since.
    raise QuotaExceeded(
        f"the plan allows {plan.max_waiting} tasks waiting; {unfinished} wait, {count.n} were submitted",
        limit=plan.max_waiting,
    )


def check_tier(plan: Plan, tier: str, *, field: str = "tier") -> None:
    """``NotGranted`` unless the plan allows ``tier``, which is none of the tenant's own."""
    if tier not in plan.tiers:
        allowed = ", ".join(sorted(plan.tiers)) or "none"
        raise NotGranted(f"the plan does not grant the tier {tier!r}; it grants {allowed}", field=field)


def check_category(plan: Plan, category: Category, *, field: str = "category") -> None:
    """``NotGranted`` for urgent work where the plan allows none."""
    if category is Category.URGENT and not plan.max_urgent_permille:
        raise NotGranted("the plan allows no urgent tasks", field=field)


def check_cap(plan: Plan, cap_ms: int, *, field: str = "cap_ms") -> None:
    """``InvalidInput`` for a cap that is not positive, ``TooLarge`` for one beyond the plan's."""
    if cap_ms <= 0:
        raise InvalidInput("must be greater than 0", field=field)
    if cap_ms > plan.max_cap_s * 1000:
        longest = float(plan.max_cap_s)
        raise NotGranted(f"the plan allows an execution cap of {longest:g} seconds at most", field=field, limit=longest)


def check_payload(plan: Plan, size: int, *, field: str = "args") -> None:
    """``TooLarge`` when a payload of ``size`` bytes is more than the plan allows."""
    _at_most(size, plan.max_payload_bytes, field, "bytes", "the payload")


def check_handler(plan: Plan, handler: str, *, field: str = "handler") -> None:
    """``NotGranted`` unless one of the plan's patterns matches ``handler``."""
    if not is_granted(plan.handlers, handler):
        raise NotGranted(f"the plan does not grant the handler {handler!r}", field=field)


def check_dag(plan: Plan, *, tasks: int, edges: int, depth: int, field: str = "tasks") -> None:
    """``TooLarge`` when a workflow has more tasks, edges or levels than the plan allows."""
    _at_most(tasks, plan.max_dag_tasks, field, "tasks", "the workflow")
    _at_most(edges, plan.max_dag_edges, field, "dependencies", "the workflow")
    _at_most(depth, plan.max_dag_depth, field, "levels", "the workflow")


def _at_most(value: int, limit: int, field: str, unit: str, what: str) -> None:
    if value > limit:
        raise TooLarge(f"{what} has {value} {unit}; the plan allows {limit}", field=field, limit=limit)
