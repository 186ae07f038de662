"""What a snapshot says that tasks need, and that tenants, clients and pools hold."""

from __future__ import annotations

from collections.abc import Hashable

from scheduler_ext.core.resources import add, filled, part, subtract, zero
from scheduler_ext.core.types import (
    CLIENT,
    NO_SLOTS,
    PER_CHILD,
    PROCESS,
    LineView,
    PoolView,
    Slots,
    Snapshot,
    TaskView,
    TenantView,
    Vector,
    WorkKind,
    add_slots,
)
from scheduler_ext.policies.accounts import Account


def need_of(line: LineView, task: TaskView) -> Hashable:
    """Everything that decides whether a node has room for a task. One with a rate shares no slot, however short it is."""
    expected = task.expected_us
    return (
        line.vector, line.labels, task.kind, task.handler_id, task.avoid_node,
        expected is not None and bool(task.rates), expected, task.long_us,
    )  # fmt: skip


def taken_by(line: LineView, kind: WorkKind) -> Vector:
    """What a task takes; tasks that share a child take their part of the vector."""
    if kind is PROCESS or kind not in PER_CHILD:
        return line.vector
    return part(line.vector, PER_CHILD[kind])


def held_in_pools(snapshot: Snapshot) -> dict[int, tuple[Slots, Vector]]:
    """What each tenant holds in pools: the rest is on its own account."""
    held: dict[int, tuple[Slots, Vector]] = {}
    for pool in snapshot.pools.values():
        for tenant_id, (slots, vector) in pool.tenants.items():
            so_far, used = held.get(tenant_id, (NO_SLOTS, zero()))
            held[tenant_id] = (add_slots(so_far, slots), add(used, filled(vector)))
    return held


def clients(snapshot: Snapshot) -> dict[str, TenantView]:
    """Each client by the name of its pool, as one tenant that has the best of its tenants' plans."""
    tenants: dict[str, set[int]] = {}
    for line in snapshot.lines:
        if line.pool.startswith(CLIENT):
            tenants.setdefault(line.pool, set()).add(line.tenant_id)
    found: dict[str, TenantView] = {}
    for name, numbers in tenants.items():
        holding = snapshot.pools[name].tenants if name in snapshot.pools else ()
        plans = [snapshot.tenants.get(number) or TenantView(tenant_id=number) for number in numbers.union(holding)]
        found[name] = TenantView(
            tenant_id=0,
            weight=max(plan.weight for plan in plans),
            guaranteed_permille=max(plan.guaranteed_permille for plan in plans),
            maximum_permille=max(plan.maximum_permille for plan in plans),
        )
    return found


def count_held(account: Account, tenant: TenantView, pool: PoolView | None,
               apart: dict[int, tuple[Slots, Vector]]) -> None:  # fmt: skip
    """Count what a tenant has in flight on its own account; what it holds in a pool is counted there."""
    if not tenant.used_slots_milli and not tenant.used:
        return
    if pool is None:
        slots, vector = apart.get(tenant.tenant_id, (NO_SLOTS, zero()))
        account.charge(add_slots(tenant.used_slots_milli, slots, -1), subtract(filled(tenant.used), vector))
        return
    held = pool.tenants.get(tenant.tenant_id)
    if held is None and (pool.tenants or not pool.used_slots_milli):
        held = (NO_SLOTS, zero())
    account.hold_all(*(held or (tenant.used_slots_milli, tenant.used)))


def member_name(tenant_id: int, workflow: str) -> str:
    """The name in past use of a workflow with a share of its own, or of all else of its tenant's."""
    return f"workflow {tenant_id} {workflow}"
