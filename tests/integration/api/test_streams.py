"""Live streams: what is told to whom, going on where one stopped, and five hundred at once on one process."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis
from django.db import connections

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import TaskState
from slackwater_api.live import event_streams as live
from slackwater_api.server.application import AsgiApplication
from slackwater_conf import conf
from slackwater_tasks.ledger.hints import keys, tell_changes
from slackwater_tasks.models import LiveTask
from slackwater_tasks.runtime import progress
from slackwater_tasks.runtime.progress import EVERY_S, MAX_CHARS, Teller
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tenants.services import create_api_key
from tests.support.api import HANDLER, ApiClient, client_of
from tests.support.front import Visit, drive, finish, until
from tests.support.hand_worker import HandWorker
from tests.support.streams import events_in

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def states(text: str | bytes) -> list[str]:
    return [event["state"] for event in events_in(text) if event["kind"] == "task"]


def tell(client: ApiClient, task_id: str, state: TaskState, workflow_id: str | None = None) -> None:
    tell_changes([(task_id, int(state), client.tenant.pk, workflow_id)])


def following(story: Callable[[AsgiApplication], Coroutine[Any, Any, None]]) -> None:
    drive(story)
    connections.close_all()


async def opened(front: AsgiApplication, client: ApiClient, path: str) -> tuple[Visit, asyncio.Task[Visit]]:
    visit = Visit(front, client.text, "GET", f"/api/v1{path}")
    job = asyncio.create_task(visit.run())
    before = len(front.live.streams)
    await until(lambda: (len(front.live.streams) > before and b"event: " in visit.body) or job.done())
    await until(lambda: front.live.feed.is_connected or job.done())
    return visit, job


def test_a_task_is_followed_to_its_end(acme: ApiClient) -> None:
    task_id = acme.task()

    async def story(front: AsgiApplication) -> None:
        visit, job = await opened(front, acme, f"/tasks/{task_id}/events")
        assert states(visit.body) == ["ready"]
        tell(acme, task_id, TaskState.RUNNING)
        tell(acme, str(uuid4()), TaskState.RUNNING)  # another's, which is not told here
        tell(acme, task_id, TaskState.SUCCEEDED)
        await job  # it ends by itself
        assert states(visit.body) == ["ready", "running", "succeeded"]
        assert events_in(visit.body)[-1]["status"] == "done"
        assert len(front.live.streams) == 0

    following(story)


def test_progress_is_told_while_somebody_follows(acme: ApiClient, redis_client: redis.Redis) -> None:
    task_id = acme.task()
    reader = ApiClient(acme.tenant, *create_api_key(acme.tenant, "reader", ("read",)))
    worker, store = HandWorker(), PgWorkStore(SchedulerConf(), "test")
    started = worker.start(UUID(task_id))[0]
    clock = [0.0]
    told = Teller(lambda: clock[0])

    def report(done: int, after: float = 1.0) -> None:
        clock[0] += after
        store.progress(task_id, started.fence, json.dumps({"done": done, "token": f"hush {done}"}))

    async def story(front: AsgiApplication) -> None:
        visit, job = await opened(front, acme, f"/tasks/{task_id}/events")
        reading, second = await opened(front, reader, f"/tasks/{task_id}/events")
        assert events_in(visit.body)[0]["progress"] == {"done": 0, "token": "hush 0"}
        await until(lambda: bool(redis_client.exists(keys().watched())))
        report(1)
        report(2, after=EVERY_S / 2)  # too soon: the ledger has it, and who asks
        report(3)
        store.progress(task_id, started.fence - 1, json.dumps({"done": 9}))  # from an attempt that was replaced
        clock[0] += 1
        store.progress(task_id, started.fence, json.dumps("x" * MAX_CHARS))
        tell(acme, task_id, TaskState.SUCCEEDED)
        await job
        await second
        heard = [event for event in events_in(visit.body) if event["kind"] == "progress"]
        assert [event["progress"] for event in heard] == [{"done": n, "token": f"hush {n}"} for n in (1, 3)]
        assert b"hush" not in reading.body, "its key only reads"
        shown = [event["progress"] for event in events_in(reading.body) if "progress" in event]
        assert shown == [{"done": n, "token": "***"} for n in (0, 1, 3)]
        seen = await opened(front, reader, f"/tasks/{task_id}/events?last_event_id={heard[0]['id']}")
        await seen[1]
        assert b'"done":3' in seen[0].body
        assert b"hush" not in seen[0].body, "nor what it missed"
        assert heard[0]["task_id"] == task_id

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "teller", told)
        report(0)
        assert LiveTask._plain.get().progress == {"done": 0, "token": "hush 0"}
        following(story)
    store.db.close()


def test_progress_costs_the_feed_nothing_while_nobody_follows(acme: ApiClient, redis_client: redis.Redis) -> None:
    assert not Teller().tell(str(uuid4()), acme.tenant.pk, None, "1")
    assert redis_client.xlen(keys().changes()) == 0


def test_tenants_and_workflows_are_apart(acme: ApiClient) -> None:
    other = client_of("other")
    workflow = acme.post("/workflows", {"tasks": [{"name": "a", "handler": HANDLER}]}).body

    async def story(front: AsgiApplication) -> None:
        mine, first = await opened(front, acme, "/events")
        one, second = await opened(front, acme, f"/workflows/{workflow['id']}/events")
        theirs, third = await opened(front, other, "/events")
        assert events_in(one.body)[0]["counts"]["ready"] == 1
        inside, outside, foreign = str(uuid4()), str(uuid4()), str(uuid4())
        tell(acme, inside, TaskState.RUNNING, workflow["id"])
        tell(acme, outside, TaskState.RUNNING)
        tell(other, foreign, TaskState.CANCELLED, workflow["id"])  # even under another's workflow
        await until(lambda: len(states(mine.body)) == 2 and len(states(theirs.body)) == 1)

        def ids(visit: Visit) -> list[str]:
            return [event["task_id"] for event in events_in(visit.body) if event["kind"] == "task"]

        assert (ids(mine), ids(one), ids(theirs)) == ([inside, outside], [inside], [foreign])
        for visit, job in ((mine, first), (one, second), (theirs, third)):
            visit.left.set()
            await job
        assert len(front.live.streams) == 0

    following(story)


def test_a_workflows_end_is_told_once(acme: ApiClient) -> None:
    workflow = acme.post("/workflows", {"tasks": [{"name": "a", "handler": HANDLER}]}).body["id"]

    async def story(front: AsgiApplication) -> None:
        visit, job = await opened(front, acme, f"/workflows/{workflow}/events")
        tell_changes([(workflow, int(TaskState.SUCCEEDED), acme.tenant.pk, workflow, None, {"id": workflow})])
        await job  # it ends by itself
        assert [event["kind"] for event in events_in(visit.body)] == ["workflow", "workflow"], "now, and its end"

    following(story)


def test_an_event_asks_the_database_nothing(acme: ApiClient) -> None:
    """The loop's own thread may not ask it; whatever does goes through the workshop's threads."""

    async def story(front: AsgiApplication) -> None:
        visit, job = await opened(front, acme, "/events")
        asked: list[Any] = []
        run = front.threads.run

        async def noted(*call: Any) -> Any:
            asked.append(call)
            return await run(*call)

        front.threads.run = noted  # type: ignore[assignment,method-assign]
        for _ in range(20):
            tell(acme, str(uuid4()), TaskState.SUCCEEDED)
        await until(lambda: len(states(visit.body)) == 20)
        assert asked == []
        visit.left.set()
        await job

    following(story)


def test_it_goes_on_where_the_client_stopped(acme: ApiClient) -> None:
    task_id = acme.task()
    path = f"/tasks/{task_id}/events"
    start = events_in(acme.get("/events").body)[0]["id"]
    tell_changes([(str(uuid4()), 5, acme.tenant.pk, None), (task_id, 5, acme.tenant.pk, None)])
    tell(acme, task_id, TaskState.SCHEDULED)
    assert states(acme.get(path, Last_Event_ID=start).body) == ["running", "scheduled"]
    first = events_in(acme.get(path, Last_Event_ID=start).body)[0]
    assert first["id"].endswith(".1")  # the second of its batch
    assert states(acme.get(path, Last_Event_ID=first["id"]).body) == ["scheduled"]
    assert states(acme.get(f"{path}?last_event_id={first['id']}").body) == ["scheduled"]
    assert states(acme.get("/events", Last_Event_ID=first["id"]).body) == ["scheduled"]
    tell(acme, task_id, TaskState.SUCCEEDED)
    finish(task_id)
    last = events_in(acme.get(path, Last_Event_ID=first["id"]).body)[-1]
    assert last["state"] == "succeeded"
    assert acme.get(path, Last_Event_ID=last["id"]).status == 204  # nothing more to come


def test_none_falls_between_the_beginning_and_the_rest(acme: ApiClient) -> None:
    """Changes come without pause while streams are opened, each of which has to have them all from its beginning."""
    ids = [str(uuid4()) for _ in range(400)]

    async def story(front: AsgiApplication) -> None:
        async def tells() -> None:
            for task_id in ids:
                await asyncio.to_thread(tell, acme, task_id, TaskState.RUNNING)

        telling = asyncio.create_task(tells())
        start = events_in(acme_get)[0]["id"]
        visits = [await opened(front, acme, f"/events?last_event_id={start}") for _ in range(5)]
        await telling
        for visit, job in visits:
            await until(lambda visit=visit: len(states(visit.body)) >= len(ids))  # type: ignore[misc]
            got = [event["task_id"] for event in events_in(visit.body)]
            assert got == ids
            visit.left.set()
            await job

    acme_get = acme.get("/events").body
    following(story)


def test_what_the_feed_forgot_is_told_by_the_ledger(acme: ApiClient, redis_client: redis.Redis) -> None:
    start = events_in(acme.get("/events").body)[0]["id"]
    task_id = acme.task()
    HandWorker().run(UUID(task_id))
    redis_client.flushall()
    body = acme.get(f"/tasks/{task_id}/events", Last_Event_ID=f"{int(time.time() * 1000) - 60_000}-0.0").body
    assert events_in(body)[0]["kind"] == "gap"
    assert states(body).count("succeeded") == 2  # its past, then how it stands
    assert [event["kind"] for event in events_in(acme.get("/events", Last_Event_ID="5-1").body)] == [
        "gap",
        "open",
    ]
    assert start


def test_without_redis_a_stream_says_how_things_stand(acme: ApiClient, settings: Any) -> None:
    task_id = acme.task()
    settings.SLACKWATER = {**settings.SLACKWATER, "REDIS_URL": "redis://127.0.0.1:1/0"}
    assert states(acme.get(f"/tasks/{task_id}/events").body) == ["ready"]
    kinds = [event["kind"] for event in events_in(acme.get("/events", Last_Event_ID="1-1").body)]
    assert kinds == ["gap", "open"]


def test_when_redis_comes_back_empty_every_stream_is_told_of_the_gap(acme: ApiClient, settings: Any) -> None:
    async def story(front: AsgiApplication) -> None:
        visit, job = await opened(front, acme, "/events")
        tell(acme, str(uuid4()), TaskState.RUNNING)
        await until(lambda: len(states(visit.body)) == 1)
        with redis.Redis.from_url(conf().redis_url) as client:

            def cut() -> bool:
                reading = [one["addr"] for one in client.client_list() if one["cmd"].startswith("xread")]
                for address in reading:
                    client.client_kill(address)
                return bool(reading)

            client.flushall()
            await until(cut)
        await until(lambda: any(event["kind"] == "gap" for event in events_in(visit.body)))
        tell(acme, str(uuid4()), TaskState.CANCELLED)
        await until(lambda: states(visit.body) == ["running", "cancelled"])
        visit.left.set()
        await job

    following(story)


def test_a_client_that_is_too_slow_is_cut_off(acme: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_BUFFERED", 3)

    async def story(front: AsgiApplication) -> None:
        visit, job = await opened(front, acme, "/events")
        tell_changes([(str(uuid4()), 5, acme.tenant.pk, None) for _ in range(50)])
        await job
        assert len(states(visit.body)) == 3

    following(story)


def test_a_quiet_stream_beats_and_ends_with_its_key(acme: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(live, "RECHECK_KEY_S", 0.2)

    ticket = acme.post("/stream-tickets", {}).body["url"]

    async def story(front: AsgiApplication) -> None:
        visit, job = await opened(front, acme, "/events")
        page = Visit(front, "", "GET", ticket)  # which has no key, and the stream all the same
        follows = asyncio.create_task(page.run())
        for one in (visit, page):
            await until(lambda one=one: one.body.count(b": beat") > 8)  # type: ignore[misc]
        assert not job.done()
        assert not follows.done()
        await asyncio.to_thread(revoke, acme)
        await asyncio.gather(job, follows)

    following(story)


def revoke(client: ApiClient) -> None:
    client.key.delete()
    connections.close_all()


@pytest.mark.parametrize("last", ["yesterday", "1", "1-", "-1", "1-1.x", "9" * 40 + "-1"])
def test_an_id_that_is_not_ours_is_refused(acme: ApiClient, last: str) -> None:
    answer = acme.get("/events", Last_Event_ID=last)
    assert (answer.status, answer.body["field"]) == (422, "Last-Event-ID")


def test_who_may_not_is_told_so_by_the_front(acme: ApiClient) -> None:
    other = client_of("other")
    task_id = acme.task()

    async def story(front: AsgiApplication) -> None:
        for client, path, status in (
            (other, f"/tasks/{task_id}/events", 404),
            (acme, "/events?x=1", 422),
            (acme, f"/workflows/{uuid4()}/events", 404),
        ):
            visit = await Visit(front, client.text, "GET", f"/api/v1{path}").run()
            assert visit.status == status, visit.body

    following(story)
