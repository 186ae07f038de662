"""Two cells side by side on one database and one Redis: neither touches the other's work."""

from __future__ import annotations

from uuid import UUID

import pytest

from scheduler_ext.core.states import TaskState
from slackwater_resources.models import Component, Node
from slackwater_tasks.models import Leader
from slackwater_tenants.services import create_tenant
from tests.support.platform import Platform
from tests.support.processes import manage
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

EAST = {"SLACKWATER_CELL": "east"}


def test_each_cell_does_its_own_work_and_nothing_else(platform: Platform) -> None:
    west = platform.tenant
    east = create_tenant("easterly", "Easterly", cell="east")
    platform.dispatcher()
    platform.start("dispatcher-east", manage("run_dispatcher"), **EAST)
    platform.upkeep()
    platform.start("upkeep-east", manage("run_upkeep"), **EAST)
    platform.worker("w1")
    eastern = platform.worker("e1", 2, **EAST)
    wait_until(lambda: Leader.objects.count() == 2, message="each cell is led")
    leaders = dict(Leader.objects.values_list("cell", "holder"))
    assert set(leaders) == {"default", "east"}
    assert len(set(leaders.values())) == 2

    there = {("dispatcher", "default"), ("dispatcher", "east"), ("upkeep", "default"), ("upkeep", "east")}
    wait_until(
        lambda: there <= set(Component.objects.values_list("kind", "cell")),
        message="each tells that it is there",
    )

    tasks: dict[str, list[UUID]] = {"default": [], "east": []}
    for n in range(10):
        for cell, tenant in (("default", west), ("east", east)):
            platform.tenant = tenant
            tasks[cell].append(platform.submit("demo.echo", n))
    cells: dict[int | None, str] = dict(Node.objects.values_list("pk", "cell"))
    for cell, ids in tasks.items():
        for task_id in ids:
            assert platform.wait(task_id).state == TaskState.SUCCEEDED
            assert {cells[a.node_id] for a in platform.attempts(task_id)} == {cell}

    eastern.end()
    platform.tenant = east
    waiting = platform.submit("demo.echo", "nobody is there")
    platform.tenant = west
    for _ in range(5):
        assert platform.wait(platform.submit("demo.echo", "west goes on")).state == TaskState.SUCCEEDED
    assert platform.state(waiting) in (TaskState.READY, TaskState.QUEUED), "the other cell's node is not lent"
    assert platform.attempts(waiting) == []
    platform.worker("e2", 2, **EAST)
    assert platform.wait(waiting).state == TaskState.SUCCEEDED
