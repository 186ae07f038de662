"""Why a task waits: each blocker is named, and the task starts when that blocker is removed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from scheduler_ext.core.states import Outcome
from slackwater_resources.models import Handler, Tier
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.control.edit import edit
from slackwater_tasks.explain.blockers import KINDS
from slackwater_tasks.explain.explanation import UNFORESEEN
from slackwater_tasks.ledger.transitions import unpark
from slackwater_tasks.models import Line, PolicyChoice, RateLimit, Resumable, RunTime
from slackwater_tasks.submission.service import store_script, submit, submit_workflow
from slackwater_tenants.models import Plan, Pool, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import HANDLER
from tests.support.cell import Cell, let_go, sql
from tests.support.hand_worker import raw_cursor
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


Remove = Callable[[], Any]
WAITING = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "waiting.md"


def dependency(cell: Cell) -> tuple[UUID, Remove]:
    tasks = [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "depends_on": ["a"]}]
    parent, child = submit_workflow(cell.tenant, {"name": "w", "tasks": tasks}).task_ids
    started = cell.worker.start(parent)
    return child, lambda: cell.worker.end(started)


def start_time(cell: Cell) -> tuple[UUID, Remove]:
    task = cell.submit(start_at="2090-01-01T00:00:00Z")
    return task, lambda: edit(cell.tenant.pk, task, {"start_at": None})


def back_off(cell: Cell) -> tuple[UUID, Remove]:
    cell.worker.conf = replace(cell.worker.conf, retry_base_s=3600.0)
    task = cell.submit()
    cell.worker.run(task, outcome=Outcome.FAILED, error="boom")
    return task, lambda: sql("UPDATE slackwater_tasks_livetask SET not_before = now() WHERE task_id = %s", task)


def mutex(cell: Cell) -> tuple[UUID, Remove]:
    holder, task = cell.submit(mutex_key="door"), cell.submit(mutex_key="door")
    started = cell.worker.start(holder)

    def end() -> None:
        cell.worker.end(started)
        with raw_cursor() as cur:
            unpark(cur, [f"{cell.tenant.pk}:door"])

    return task, end


def rate(cell: Cell) -> tuple[UUID, Remove]:
    limit = RateLimit.objects.create(tenant=cell.tenant, key="bank", starts=1, per_s=3600)
    first, task = cell.submit(rate_key="bank"), cell.submit(rate_key="bank")
    assert cell.claimed(first)
    return task, lambda: RateLimit.objects.filter(pk=limit.pk).update(starts=2)


def rate_of(cell: Cell, **whose: Any) -> tuple[UUID, Remove]:
    limit = RateLimit.objects.create(starts=1, per_s=3600, **whose)
    first, task = cell.submit(), cell.submit()
    assert cell.claimed(first)
    return task, limit.delete


def rate_handler(cell: Cell) -> tuple[UUID, Remove]:
    return rate_of(cell, handler=Handler.objects.get(name=HANDLER))


def rate_tenant(cell: Cell) -> tuple[UUID, Remove]:
    return rate_of(cell, tenant=cell.tenant)


def mutex_of_two(cell: Cell) -> tuple[UUID, Remove]:
    *holders, task = [cell.submit(mutex_key="door", mutex_limit=2) for _ in range(3)]
    started = cell.worker.start(*holders)

    def end() -> None:
        cell.worker.end(started[:1])
        with raw_cursor() as cur:
            unpark(cur, [f"{cell.tenant.pk}:door"])

    return task, end


def plan_number(cell: Cell, name: str, low: int, high: int) -> Remove:
    setattr(cell.tenant.plan, name, low)
    cell.tenant.plan.save()

    def raise_it() -> None:
        setattr(cell.tenant.plan, name, high)
        cell.tenant.plan.save()

    return raise_it


def tenant_in_flight(cell: Cell) -> tuple[UUID, Remove]:
    cell.worker.start(cell.submit())
    return cell.submit(), plan_number(cell, "max_in_flight", 1, 10)


def hard_share(cell: Cell) -> tuple[UUID, Remove]:
    cell.worker.start(cell.submit())
    return cell.submit(), plan_number(cell, "maximum_permille", 200, 1000)


def capacity_pool(cell: Cell, **terms: Any) -> Pool:
    PolicyChoice.objects.create(kind="share", policy="capacity", parameters={})
    return Pool.objects.create(slug="half", **terms)


def hard_share_of_pool(cell: Cell) -> tuple[UUID, Remove]:
    """One of five slots is all its pool may have."""
    cell.tenant.pool = pool = capacity_pool(cell, guaranteed=20, maximum=20)
    cell.tenant.save()
    cell.worker.start(cell.submit())
    return cell.submit(), lambda: Pool.objects.filter(pk=pool.pk).update(maximum=100)


def hard_share_kept(cell: Cell) -> tuple[UUID, Remove]:
    """Four of five slots are kept for a pool that lends nothing."""
    pool = capacity_pool(cell, guaranteed=80, lends=0)
    cell.worker.start(cell.submit())
    return cell.submit(), lambda: Pool.objects.filter(pk=pool.pk).update(lends=100)


def peak_of_delayable(cell: Cell) -> tuple[UUID, Remove]:
    """Ninety-six hundredths of the processors are in use; there is room for the task."""
    own_tier(cell, "most", 3_840)
    own_tier(cell, "little", 100)
    started = cell.worker.start(cell.submit(tier="most"))
    return cell.submit(tier="little"), lambda: cell.worker.end(started)


def peak_in_window(cell: Cell) -> tuple[UUID, Remove]:
    cell.configure(ceiling_windows="00:00-24:00 UTC offpeak=0")
    return cell.submit(category="offpeak"), lambda: cell.configure(ceiling_windows="")


def own_tier(cell: Cell, slug: str, cpu_milli: int) -> None:
    Tier.objects.create(slug=slug, tenant=cell.tenant, cpu_milli=cpu_milli, memory_mb=1)


def no_resource(cell: Cell) -> tuple[UUID, Remove]:
    """Slots are free, but no node has the processors."""
    own_tier(cell, "half", 2_000)
    own_tier(cell, "large", 3_000)
    started = cell.worker.start(cell.submit(tier="half"))
    return cell.submit(tier="large"), lambda: cell.worker.end(started)


def reserved(cell: Cell) -> tuple[UUID, Remove]:
    """There is room for it beside what runs, but not beside the larger one that waits for that to end."""
    cell.configure(reserve_after_s=0.0)
    own_tier(cell, "medium", 1_500)
    large, _ = no_resource(cell)
    return cell.submit(tier="medium"), lambda: cancel(cell.tenant.pk, large)


def share(cell: Cell) -> tuple[UUID, Remove]:
    """The last slot is another tenant's, which holds less."""
    cell.worker.start(*[cell.submit() for _ in range(4)])
    rival = create_tenant("rival", "Rival")
    first = submit(rival, {"handler": HANDLER}).task_ids[0]
    task = cell.submit()

    def turn_passes() -> None:
        assert not cell.claimed(task)
        cell.worker.end(cell.started(first))

    return task, turn_passes


def yielded(cell: Cell) -> tuple[UUID, Remove]:
    """Asked to let urgent work by, it has saved and yielded."""
    cell.resize(1)
    cell.configure(yield_after_s=0.0)
    cell.take_turns()
    task = cell.submit(checkpoints=True)
    started = cell.worker.start(task)
    urgent = cell.submit(category="urgent")
    cell.round()
    cell.worker.end(started, Outcome.YIELDED)
    return task, lambda: cancel(cell.tenant.pk, urgent)


def yielded_by_force(cell: Cell) -> tuple[UUID, Remove]:
    """Ended for a pool that starved."""
    cell.resize(2)
    Handler.objects.filter(name=HANDLER).update(idempotent=True)
    PolicyChoice.objects.create(kind="share", policy="fair", parameters={"starvation_s": 0})
    Plan.objects.create(slug="half", name="Half", guaranteed_permille=500)
    cell.take_turns()
    tasks = [cell.submit() for _ in range(2)]
    started = cell.worker.start(*tasks)
    starving = create_tenant("starving", "Starving", "half")
    first = submit(starving, {"handler": HANDLER}).task_ids[0]
    cell.round()
    asked = Resumable.objects.unscoped().get().task_id  # the test is no tenant
    cell.worker.end([one for one in started if one.task_id == str(asked)], Outcome.PREEMPTED)
    return asked, lambda: cancel(starving.pk, first)


def start_time_of_dependant(cell: Cell) -> tuple[UUID, Remove]:
    """What it needs has ended; its own time has not come."""
    later = "2090-01-01T00:00:00Z"
    tasks = [
        {"name": "a", "handler": HANDLER},
        {"name": "b", "handler": HANDLER, "depends_on": ["a"], "start_at": later},
    ]
    parent, child = submit_workflow(cell.tenant, {"name": "w", "tasks": tasks}).task_ids
    assert cell.kinds(child) == ["dependency", "start_time"]
    cell.worker.run(parent)
    return child, lambda: edit(cell.tenant.pk, child, {"start_at": None})


def line_paused(cell: Cell) -> tuple[UUID, Remove]:
    task = cell.submit()
    lines = Line.objects.unscoped().filter(tenant=cell.tenant)  # the test is no tenant
    lines.update(paused=True)
    return task, lambda: lines.update(paused=False)


def no_node_for_scripts(cell: Cell) -> tuple[UUID, Remove]:
    script = store_script(cell.tenant, "job.sh", b"#!/bin/sh\n")
    task = submit(cell.tenant, {"script": script.sha256}).task_ids[0]

    def offer() -> None:
        cell.worker.node.slots = {"process": 5, "script": 1}
        cell.worker.node.save()

    return task, offer


def no_node_while_starting(cell: Cell) -> tuple[UUID, Remove]:
    task_id, removes = no_node_while_draining(cell)
    cell.worker.node.state = "starting"
    cell.worker.node.save()
    assert "is starting: hand-1" in str(cell.explain(task_id)["blockers"])
    return task_id, removes


def no_node_while_draining(cell: Cell) -> tuple[UUID, Remove]:
    cell.worker.node.state = "draining"
    cell.worker.node.save()

    def resume() -> None:
        cell.worker.node.state = "active"
        cell.worker.node.save()

    task_id = cell.submit()
    (blocker,) = cell.explain(task_id)["blockers"]
    assert blocker["detail"] == "The node that could run it drains, and takes nothing new: hand-1."
    return task_id, resume


def peak(cell: Cell) -> tuple[UUID, Remove]:
    started = cell.worker.start(*[cell.submit() for _ in range(4)])
    return cell.submit(category="offpeak"), lambda: cell.worker.end(started[:1])


def no_slot(cell: Cell) -> tuple[UUID, Remove]:
    started = cell.worker.start(*[cell.submit() for _ in range(5)])
    return cell.submit(category="urgent"), lambda: cell.worker.end(started[:1])


def position(cell: Cell) -> tuple[UUID, Remove]:
    started = cell.worker.start(*[cell.submit() for _ in range(4)])
    before = [cell.submit() for _ in range(2)]
    task = cell.submit()

    def clear() -> None:
        cell.worker.end(started)
        cell.worker.run(*before)

    return task, clear


def tenant_paused(cell: Cell) -> tuple[UUID, Remove]:
    task = cell.submit()
    Tenant.objects.filter(pk=cell.tenant.pk).update(paused=True)
    return task, lambda: Tenant.objects.filter(pk=cell.tenant.pk).update(paused=False)


def handler_paused(cell: Cell) -> tuple[UUID, Remove]:
    task = cell.submit()
    Handler.objects.filter(name=HANDLER).update(paused=True)
    return task, lambda: Handler.objects.filter(name=HANDLER).update(paused=False)


def never_fits(cell: Cell) -> tuple[UUID, Remove]:
    Tier.objects.create(slug="huge", tenant=cell.tenant, cpu_milli=10**9, memory_mb=1)
    task = cell.submit(tier="huge")
    return task, lambda: edit(cell.tenant.pk, task, {"tier": "basic"})


def no_labels(cell: Cell) -> tuple[UUID, Remove]:
    task = cell.submit(require_labels=["gpu"])
    return task, lambda: edit(cell.tenant.pk, task, {"require_labels": []})


def no_node(cell: Cell) -> tuple[UUID, Remove]:
    Handler.objects.create(name="demo.nowhere")

    def export() -> None:
        cell.worker.node.handlers = list(Handler.objects.values_list("pk", flat=True))
        cell.worker.node.save()

    return submit(cell.tenant, {"handler": "demo.nowhere"}).task_ids[0], export


def dispatcher(cell: Cell) -> tuple[UUID, Remove]:
    sql("UPDATE slackwater_tasks_leader SET expires_at = now() - interval '1 s'")
    cell.dispatcher._renewed = float("-inf")
    return cell.submit(), cell.dispatcher.keep_lead


CASES: dict[str, Callable[[Cell], tuple[UUID, Remove]]] = {
    "dependency": dependency, "start_time": start_time, "back_off": back_off, "mutex": mutex, "rate": rate,
    "tenant_in_flight": tenant_in_flight, "hard_share": hard_share, "peak": peak, "no_slot": no_slot,
    "position": position, "paused tenant": tenant_paused, "paused handler": handler_paused,
    "never_fits": never_fits, "no_labels": no_labels, "no_node": no_node, "dispatcher": dispatcher,
    "rate of handler": rate_handler, "rate of tenant": rate_tenant, "mutex of two": mutex_of_two,
    "hard_share of pool": hard_share_of_pool, "hard_share kept": hard_share_kept,
    "peak of delayable": peak_of_delayable, "peak in window": peak_in_window, "no_resource": no_resource,
    "reserved": reserved, "share": share, "yielded": yielded, "yielded by force": yielded_by_force,
    "start_time of dependant": start_time_of_dependant, "paused line": line_paused,
    "no_node for scripts": no_node_for_scripts, "no_node while starting": no_node_while_starting,
    "no_node while draining": no_node_while_draining,
}  # fmt: skip


PASSING = frozenset({"position", "share", "yielded"})
"""What the very next round takes away."""
FORESEEN = frozenset(
    {"mutex", "no_slot", "no_resource", "position", "peak", "dependency", "tenant_in_flight", "reserved", "share", "yielded",
     "hard_share"}
)  # fmt: skip
NAMED = {"mutex": 1, "mutex of two": 2, "dependency": 1, "reserved": 1, "yielded": 1, "yielded by force": 0}
"""How many tasks a blocker names."""


def test_every_kind_of_blocker_has_its_case_and_its_line_in_the_documents() -> None:
    assert {name.split(maxsplit=1)[0] for name in CASES} == set(KINDS)
    table = [line for line in WAITING.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert set(re.findall("`([a-z_]+)`", "".join(line.split("|")[1] for line in table))) == set(KINDS)


@pytest.mark.parametrize("name", CASES)
def test_removing_the_named_blocker_starts_the_task(cell: Cell, name: str) -> None:
    task, remove = CASES[name](cell)
    kind = name.split(maxsplit=1)[0]
    if kind != "dispatcher":
        assert kind in cell.kinds(task), "before a round"
        if kind not in PASSING:
            assert not cell.claimed(task)
    known = {"samples": 50, "mean_us": 1e6}  # else nobody could tell when it starts
    RunTime.objects.update_or_create(tenant=cell.tenant, key=HANDLER, defaults=known)
    found = cell.explain(task)
    blockers = {blocker["kind"]: blocker for blocker in found["blockers"]}
    assert kind in blockers
    assert set(blockers) <= set(KINDS)
    assert found["waiting"]
    if name in NAMED:
        assert len(blockers[kind]["task_ids"]) == NAMED[name], "its own tenant's are named, others' are not"
    predicted = found["predicted_start"]
    assert (predicted is None) == bool(found["not_predicted"])
    if kind in UNFORESEEN:
        assert found["not_predicted"] == f"Nobody knows when this ends: {blockers[kind]['detail']}"
    if kind in FORESEEN and name != "peak in window":  # that window never closes
        assert predicted["earliest"] <= predicted["likely"] <= predicted["latest"]
    remove()
    let_go(cell)
    wait_until(lambda: cell.claimed(task), message="it starts")
    assert cell.explain(task)["blockers"] == []
