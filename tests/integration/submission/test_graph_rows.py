"""Tasks of a graph that are alike are read and written out once: what is stored is as if each were by itself."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_ext.core.errors import InvalidInput
from slackwater_tasks import spec
from slackwater_tasks.models import LiveTask, Task
from slackwater_tasks.spec import parse_tasks
from slackwater_tasks.submission.service import submit_many, submit_workflow
from slackwater_tenants.models import Tenant
from tests.support.api import HANDLER, client_of, furnish

pytestmark = pytest.mark.django_db(transaction=True)
OWN = {"id", "task_id", "workflow_id", "submitted_at", "latest_start", "promote_at", "rank"}
AWKWARD = "n\\N \\{0}"


@pytest.fixture
def tenant() -> Tenant:
    furnish()
    return client_of("graph-rows").tenant


def graph(count: int, **fields: Any) -> list[dict[str, Any]]:
    """Diamonds: one first, two after it, one behind both; and a loose one, of each kind in turn."""
    made = []
    for n in range(count):
        place = n % 5
        item = {"handler": HANDLER, "args": [n, "\\"], "name": AWKWARD.format(n), "priority": n % 2, **fields}
        if place in (1, 2):
            item["depends_on"] = [AWKWARD.format(n - place)]
        elif place == 3:
            item["depends_on"] = [AWKWARD.format(n - 2), AWKWARD.format(n - 1)]
        made.append(item)
    return made


def stored(tenant: Tenant) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The two rows of each task in order of their ids, without what is its own; and none of them is left."""
    wide = Task.objects.unscoped().for_tenant(tenant.pk).order_by("pk").values()
    thin = LiveTask.objects.unscoped().for_tenant(tenant.pk).order_by("pk").values()
    found = [
        tuple({k: v for k, v in row.items() if k not in OWN} for row in pair) for pair in zip(wide, thin, strict=True)
    ]
    LiveTask.objects.unscoped().for_tenant(tenant.pk).delete()
    Task.objects.unscoped().for_tenant(tenant.pk).delete()
    return found  # type: ignore[return-value]  # pairs


@pytest.mark.parametrize("fields", [
    {}, {"mutex_key": "k", "mutex_scope": "dependent"}, {"mutex_key": "k", "mutex_scope": "independent"},
    {"total_attempts": 1, "rate_key": "r", "category": "urgent"}, {"tags": ["a"], "metadata": {"a": "b"}},
], ids=str)  # fmt: skip
def test_the_rows_are_those_of_each_by_itself(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    items = graph(40, **fields)
    submit_many(tenant, items, actor="me")
    together = stored(tenant)
    submit_workflow(tenant, {"name": "w", "tasks": items}, actor="me")
    as_workflow = stored(tenant)
    monkeypatch.setattr(spec, "_known_shape", lambda *_: None)
    submit_many(tenant, items, actor="me")
    assert together == stored(tenant)
    assert [wide["name"] for wide, _ in together] == [item["name"] for item in items]
    submit_workflow(tenant, {"name": "w", "tasks": items}, actor="me")
    assert as_workflow == stored(tenant)


def test_a_fault_is_told_with_all_others_of_its_task() -> None:
    items: list[dict[str, Any]] = [{"handler": HANDLER, "name": f"n{n}"} for n in range(3)]
    items[1] |= {"name": 7, "depends_on": "n0", "priority": "high", "args": {}}
    with pytest.raises(InvalidInput) as caught:
        parse_tasks(items, "tasks")
    found = {each["field"] for each in caught.value.extra["errors"]}
    assert found == {"tasks[1].name", "tasks[1].depends_on", "tasks[1].priority", "tasks[1].args"}
