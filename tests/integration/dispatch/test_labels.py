"""Labels bind from the submission to the node: handlers, plans, edits and runs again; told by explain and to autoscalers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
import redis
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.test import Client

from scheduler_ext.core.errors import ConfigurationError, Impossible, InvalidInput
from scheduler_ext.core.states import Category, Outcome
from scheduler_ext.task import handlers
from scheduler_ext.task.handlers import handler
from slackwater_conf import WrongSetting, conf
from slackwater_resources.models import Handler
from slackwater_tasks.control.edit import edit
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.models import Line, LiveTask
from slackwater_tasks.read import overview, tasks
from slackwater_tasks.read.autoscaling import advice, demands
from slackwater_tasks.submission.service import submit
from slackwater_tenants.scoping import tenant_scope
from tests.support.api import HANDLER, forget_lookups
from tests.support.cell import Cell, let_go, sql
from tests.support.hand_worker import HandWorker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cell(redis_client: redis.Redis, settings: Any) -> Iterator[Cell]:
    made = Cell(redis_client, settings)
    yield made
    made.store.db.close()


def label(cell: Cell, *labels: str) -> None:
    cell.worker.node.labels = list(labels)
    cell.worker.node.save()


def line_of(task: UUID) -> Line:
    return LiveTask.objects.unscoped().select_related("line").get(pk=task).line  # the test is no tenant


def test_a_task_waits_for_its_labels_says_which_and_starts_when_a_node_has_them(cell: Cell) -> None:
    label(cell, "ssd")
    task = cell.submit(require_labels=["gpu=a100", "ssd"], prefer_labels=["zone=eu"])
    plain = cell.submit()
    assert not cell.claimed(task)
    assert cell.claimed(plain)
    (blocker,) = cell.explain(task)["blockers"]
    assert (blocker["kind"], blocker["clears"]) == ("no_labels", "A node with them registers, or the task is edited.")
    assert blocker["detail"].startswith("No registered node that could run it has the label gpu=a100.")
    let_go(cell)
    assert not cell.claimed(task)  # the label is still nowhere
    # What an autoscaler is told: this much is asked of nodes with both, and there is none.
    found = {f"{one.kind} {one.labels}": (one.slots, one.demand) for one in demands()}
    assert (found["process gpu=a100,ssd"], found["process "]) == ((0, 1), (5, 1))
    told = StringIO()
    call_command("nodes", "--wanted", "--json", stdout=told)
    sets = {row["labels"]: row["workers"] for row in json.loads(told.getvalue())["labels"]}
    assert sets == {"": 1, "gpu=a100,ssd": 1}
    assert 'slackwater_labels_wanted_workers{cell="default",labels="gpu=a100,ssd"} 1.0' in (
        Client().get("/metrics").content.decode()
    )
    label(cell, "ssd", "gpu=a100")
    let_go(cell)
    assert cell.claimed(task)
    cell.resize(1)
    busy = cell.submit(require_labels=["gpu"], category="urgent")
    assert not cell.claimed(busy)
    assert "No fitting node with the label gpu has room" in cell.explain(busy)["blockers"][0]["detail"]


@pytest.mark.parametrize(
    ("state", "told"), [("starting", "is starting: gpu-1."), ("draining", "drains, and takes nothing new: gpu-1.")]
)
def test_a_node_with_its_labels_that_starts_or_drains_is_named(cell: Cell, state: str, told: str) -> None:
    other = HandWorker("gpu-1").node
    other.state, other.labels = state, ["gpu=a100"]
    other.save()
    (blocker,) = cell.explain(cell.submit(require_labels=["gpu"]))["blockers"]
    assert (blocker["kind"], blocker["detail"]) == ("no_labels", f"The node that could run it {told}")
    (blocker,) = cell.explain(cell.submit(require_labels=["ssd"]))["blockers"]
    assert blocker["detail"].startswith("No registered node that could run it has the label ssd.")


def test_a_reserved_node_runs_only_what_requires_one_of_its_labels(cell: Cell) -> None:
    label(cell, "gpu=a100", "reserved")
    plain, liking, asking = cell.submit(), cell.submit(prefer_labels=["gpu"]), cell.submit(require_labels=["gpu"])
    assert cell.claimed(asking)
    assert not cell.claimed(plain)
    assert not cell.claimed(liking)
    (blocker,) = cell.explain(plain)["blockers"]
    assert blocker["kind"] == "no_labels"
    assert "is reserved for work that requires" in blocker["detail"]
    let_go(cell)
    assert not cell.claimed(plain), "a reserved node lets nothing go"
    *by_labels, whole = advice("default")
    assert [(one.labels, one.have) for one in by_labels] == [("gpu", 1)]
    assert (whole.wanted, whole.have, whole.release) == (1, 0, ())
    cell.tenant.plan.refuse_impossible = True
    cell.tenant.plan.save()
    with pytest.raises(Impossible, match="is reserved") as refused:
        cell.submit()
    assert refused.value.field == "require_labels"
    label(cell, "gpu=a100")
    let_go(cell)
    assert cell.claimed(plain)
    assert cell.claimed(liking)


def test_runs_again_edits_and_lateness_keep_the_labels(cell: Cell) -> None:
    label(cell, "gpu")
    task = cell.submit(require_labels=["gpu"], total_attempts=1)
    line = line_of(task)
    assert (line.require_labels, line.prefer_labels) == (["gpu"], [])
    assert line_of(cell.submit()).pk != line.pk
    assert line_of(cell.submit(require_labels=["gpu"])).pk == line.pk
    cell.worker.run(task, outcome=Outcome.FAILED, error="boom")
    retry(cell.tenant.pk, task)
    assert line_of(task).pk == line.pk
    edit(cell.tenant.pk, task, {"require_labels": ["ssd"]})
    assert line_of(task).require_labels == ["ssd"]
    edit(cell.tenant.pk, task, {"require_labels": []})
    assert line_of(task).require_labels == []
    late = cell.submit(require_labels=["gpu"], delay_tolerance_s=0.001)
    sql("UPDATE slackwater_tasks_livetask SET promote_at = now() - interval '1 second' WHERE task_id = %s", late)
    cell.resize(1)
    cell.round()
    urgent = line_of(late)
    assert (urgent.category, urgent.require_labels) == (Category.URGENT, ["gpu"])
    # One line for its tenant: it is paused as one, and what is new of it is paused, too.
    one = next(row for row in overview.queues(cell.tenant) if row["category"] == "delayable")
    assert (one["ready"], one["paused"]) == (3, False)
    call_command("pause", "line", "delayable/basic", "--tenant", cell.tenant.slug, stdout=StringIO())
    assert line_of(cell.submit(require_labels=["zone=eu"])).paused
    assert overview.queue(cell.tenant, "delayable", "basic")["paused"]


def test_handlers_and_plans_ask_for_labels_beside_the_task(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "find", lambda _: None)  # another test's process may have the handler itself
    Handler.objects.filter(name=HANDLER).update(defaults={"require_labels": ["gpu"], "prefer_labels": ["ssd"]})
    cell.tenant.plan.require_labels = ["pool=shared"]
    cell.tenant.plan.save()
    reference_cache.forget()
    line = line_of(cell.submit(require_labels=["zone=eu"]))
    assert (line.require_labels, line.prefer_labels) == (["gpu", "pool=shared", "zone=eu"], ["ssd"])
    task = cell.submit(prefer_labels=["zone=eu"])
    line = line_of(task)
    assert (line.require_labels, line.prefer_labels) == (["gpu", "pool=shared"], ["zone=eu"])
    with tenant_scope(cell.tenant.pk):
        told = tasks.task(task)
    assert (told["require_labels"], told["prefer_labels"]) == (["gpu", "pool=shared"], ["zone=eu"]), "the plan's, too"
    cell.tenant.plan.refuse_impossible = True
    with pytest.raises(Impossible, match="has gpu, pool=shared") as refused:
        submit(cell.tenant, {"tasks": [{"handler": HANDLER}]}["tasks"][0])
    assert refused.value.field == "require_labels"
    label(cell, "gpu=a100", "pool=shared")
    cell.submit()
    with pytest.raises(ConfigurationError, match="a b"):
        handler(name="labels.none", require_labels=["a b"])(lambda: None)
    cell.tenant.plan.require_labels = ["a b"]
    with pytest.raises(ValidationError, match="NAME=VALUE"):
        cell.tenant.plan.clean_fields()


def test_labels_that_are_none_are_refused_by_name(cell: Cell, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong, field in (("gpu", "require_labels"), (["a,b"], r"require_labels\[0\]"), (["a"] * 17, "require_labels")):
        with pytest.raises(InvalidInput) as refused:
            cell.submit(require_labels=wrong)
        assert refused.value.field == field.replace("\\", "")
    monkeypatch.setattr(reference_cache, "MOST_LABELLED", 2)
    for name in ("a", "b", "a"):
        cell.submit(require_labels=[name])
    forget_lookups()
    cell.submit(require_labels=["b"])
    with pytest.raises(InvalidInput, match="at most 2 lines with labels"):
        cell.submit(require_labels=["c"])
    settings.SLACKWATER = {**settings.SLACKWATER, "LABELS": "gpu,a b"}
    with pytest.raises(WrongSetting, match="LABELS"):
        conf()
