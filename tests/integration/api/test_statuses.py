"""Polled statuses: from memory while the feed is heard, never behind what was told, never another tenant's."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connections

from scheduler_ext.core.states import TaskState
from slackwater_api.live import status_cache as module
from slackwater_api.live.change_feed import Batch
from slackwater_api.live.status_cache import Statuses
from slackwater_api.server.application import AsgiApplication
from slackwater_tasks.ledger.hints import tell_changes
from slackwater_tasks.read import tasks
from tests.support.api import ApiClient, client_of
from tests.support.front import Visit, drive, finish, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """What the ledger was asked."""
    found: list[UUID] = []
    read = tasks.status

    def noted(task_id: UUID) -> dict[str, Any]:
        found.append(task_id)
        return read(task_id)

    monkeypatch.setattr(tasks, "status", noted)
    return found


async def poll(front: AsgiApplication, client: ApiClient, task_id: str) -> Visit:
    return await Visit(front, client.text, "GET", f"/api/v1/tasks/{task_id}/status").run()


async def heard(front: AsgiApplication, client: ApiClient, task_id: str) -> None:
    """Poll once, and wait until the feed is heard."""
    await poll(front, client, task_id)
    await until(lambda: front.live.feed.is_connected)


def test_it_is_read_once_until_the_feed_tells(acme: ApiClient, asked: list[UUID], monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "TTL_S", 60.0)
    task_id = acme.task()

    async def story(front: AsgiApplication) -> None:
        await heard(front, acme, task_id)
        asked.clear()
        for _ in range(5):
            assert (await poll(front, acme, task_id)).json["state"] == "ready"
        assert len(asked) == 1
        await asyncio.to_thread(finish, task_id)
        assert (await poll(front, acme, task_id)).json["state"] == "ready"  # nobody has told yet
        tell_changes([(task_id, int(TaskState.SUCCEEDED), acme.tenant.pk, None)])
        await until(lambda: task_id not in front.live.statuses._known)
        last = await poll(front, acme, task_id)
        assert (last.json["state"], last.json["status"]) == ("succeeded", "done")
        assert len(asked) == 2

    drive(story)
    connections.close_all()


def test_a_task_narrowed_to_its_status_is_answered_from_memory_too(
    acme: ApiClient, asked: list[UUID], monkeypatch: Any
) -> None:
    monkeypatch.setattr(module, "TTL_S", 60.0)
    whole: list[UUID] = []
    read = tasks.task

    def noted(task_id: UUID) -> dict[str, Any]:
        whole.append(task_id)
        return read(task_id)

    monkeypatch.setattr(tasks, "task", noted)
    task_id = acme.task()

    async def narrowed(front: AsgiApplication, fields: str) -> Visit:
        return await Visit(front, acme.text, "GET", f"/api/v1/tasks/{task_id}?fields={fields}").run()

    async def story(front: AsgiApplication) -> None:
        await narrowed(front, "state")
        await until(lambda: front.live.feed.is_connected)
        asked.clear()
        for _ in range(5):
            assert (await narrowed(front, "state,%20status")).json == {"state": "ready", "status": "waiting"}
        assert (len(asked), whole) == (1, [])
        # What can change without a transition is read each time.
        assert (await narrowed(front, "state,progress")).json == {"state": "ready", "progress": None}
        assert len(whole) == 1
        await asyncio.to_thread(finish, task_id)
        tell_changes([(task_id, int(TaskState.SUCCEEDED), acme.tenant.pk, None)])
        await until(lambda: task_id not in front.live.statuses._known)
        assert (await narrowed(front, "state")).json == {"state": "succeeded"}

    drive(story)
    connections.close_all()


def test_what_nobody_tells_is_a_second_old_at_most(acme: ApiClient, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "TTL_S", 0.05)
    task_id = acme.task()

    async def story(front: AsgiApplication) -> None:
        await heard(front, acme, task_id)
        await poll(front, acme, task_id)
        await asyncio.to_thread(finish, task_id)
        async with asyncio.timeout(5):
            while (await poll(front, acme, task_id)).json["state"] != "succeeded":
                await asyncio.sleep(0.02)

    drive(story)
    connections.close_all()


def test_another_tenant_never_gets_what_is_remembered(acme: ApiClient) -> None:
    other, task_id = client_of("other"), acme.task()

    async def story(front: AsgiApplication) -> None:
        await heard(front, acme, task_id)
        assert (await poll(front, acme, task_id)).status == 200
        assert task_id in front.live.statuses._known
        assert (await poll(front, other, task_id)).status == 404
        assert (await poll(front, acme, str(uuid4()))).status == 404

    drive(story)
    connections.close_all()


def test_without_redis_each_comes_from_the_ledger(acme: ApiClient, asked: list[UUID], settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "REDIS_URL": "redis://127.0.0.1:1/0"}
    task_id = acme.task()

    async def story(front: AsgiApplication) -> None:
        for _ in range(3):
            assert (await poll(front, acme, task_id)).json["state"] == "ready"
        assert len(asked) == 3

    drive(story)
    connections.close_all()


class Heard:
    """A feed that is heard, as far as statuses know one."""

    is_connected = True


def test_what_changes_while_it_is_read_is_not_kept() -> None:
    known, task_id = Statuses(Heard()), uuid4()  # type: ignore[arg-type]
    known._follows = True
    begun, told = threading.Event(), threading.Event()

    def slow() -> dict[str, Any]:
        begun.set()
        assert told.wait(5)
        return {"state": "ready"}

    reader = threading.Thread(target=known.get, args=(1, task_id, slow))
    reader.start()
    assert begun.wait(5)
    known._receive(Batch((1, 1), [(str(task_id), 5, 1, None, None, None, None)], 1))
    # Another reads now, and sees it as it is; the first must not overwrite that with what it saw before.
    assert known.get(1, task_id, lambda: {"state": "running"}) == {"state": "running"}
    told.set()
    reader.join()
    assert known.get(1, task_id, lambda: {"state": "never"}) == {"state": "running"}
