"""Handlers that use Celery's own API run as often as they say, and nothing of theirs leaves the ledger."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from celery import Celery

from scheduler_ext.core.errors import InvalidInput, NoTenant
from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.task import celery_json
from slackwater.celery import app
from slackwater.settings.environment import celery_broker_url
from slackwater_resources.models import Node
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.models import Task
from slackwater_tenants.scoping import tenant_scope
from tests.support import calling
from tests.support.platform import Platform
from tests.support.processes import ManagedProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture
def worker(platform: Platform) -> ManagedProcess:
    """A worker with handlers that use Celery's API, and all it needs."""
    platform.dispatcher()
    platform.upkeep()
    return platform.worker(SLACKWATER_HANDLERS="tests.support.calling")


def ran(folder: Path) -> list[str]:
    """What has run, in its order."""
    path = folder / "ran"
    return path.read_text().splitlines() if path.exists() else []


def result(platform: Platform, task_id: Any) -> Any:
    """The result of a task of the tenant that succeeds."""
    end = platform.wait(UUID(str(task_id)), timeout=30)
    assert end.state == TaskState.SUCCEEDED, end.error
    assert end.tenant_id == platform.tenant.pk
    return end.result


def test_what_a_handler_hands_in_are_tasks_of_its_tenant_and_what_strays_in_is_none(
    platform: Platform, worker: ManagedProcess, tmp_path: Path, redis_url: str, settings: Any
) -> None:
    """One platform: none of them disturbs the others."""

    def folder(name: str) -> Path:
        (made := tmp_path / name).mkdir()
        return made

    _handed_in(platform, folder("nests"))
    _replaced(platform, folder("becomes"))
    _a_retry_runs_as_often_as_it_says(platform, folder("again"))
    _strays_are_refused(platform, worker, folder("stray"), redis_url)
    _elsewhere_a_tenant_is_needed(platform, folder("elsewhere"), settings)


def _a_retry_runs_as_often_as_it_says(platform: Platform, tmp_path: Path) -> None:
    folder = str(tmp_path)
    ids = {
        "raised": platform.submit("calls.again", folder, "raised"),
        "told": platform.submit("calls.again", folder, "told", kwargs={"throw": False}),
        "auto": platform.submit("calls.auto", folder, "auto"),
    }
    for line, task_id in ids.items():
        assert result(platform, task_id) == "paid"
        outcomes = [attempt.outcome for attempt in platform.attempts(task_id)]
        assert outcomes == [Outcome.RETRY, Outcome.SUCCEEDED], line
    few = platform.submit("calls.fewer", folder, 2, total_attempts=5)
    assert result(platform, few) == "none left"
    single = platform.submit("calls.once", folder, total_attempts=5)
    at, prices = datetime(2026, 11, 23, 7, tzinfo=UTC), [Decimal("1.10"), Decimal("2.20")]
    wait_a_little: Any = calling.soft
    with tenant_scope(platform.tenant.pk):
        reminded = wait_a_little.apply_async((at, prices), soft_time_limit=0.3, headers={"who": "ann"})
    assert result(platform, reminded.id) == json.loads(
        celery_json.dumps({"at": at, "sum": Decimal("3.30"), "headers": {"who": "ann"}})
    )
    with tenant_scope(platform.tenant.pk):
        assert (reminded.get(timeout=30)["at"], reminded.state) == (at, "SUCCESS")
        with pytest.raises(ValueError, match=r"^no$"):
            app.AsyncResult(str(single)).get(timeout=30)
    assert len(platform.attempts(UUID(reminded.id))) == 3, "as often as retry() allowed, not as its class says"
    assert platform.wait(single, timeout=30).state == TaskState.FAILED
    never = platform.wait(platform.submit("calls.never", folder), timeout=30)
    assert never.state == TaskState.FAILED
    for line in ("capped", "dies"):
        assert platform.wait(platform.submit("calls.deaf", folder, line), timeout=30).state == TaskState.FAILED
    taken_back = platform.submit("calls.deaf", folder, "cancelled", execution_cap_s=60)
    wait_until(lambda: ran(tmp_path).count("deaf") == 3, message="the third runs")
    cancel(platform.tenant.pk, taken_back)
    told = ["capped TimeLimitExceeded True", "dies WorkerLostError True", "cancelled revoked True"]
    wait_until(lambda: set(told) <= set(ran(tmp_path)), message="another process tells what these could not")
    # What was published as well would have run by now: it stands in a queue that this worker has looked at since.
    app.send_task("calls.plain", (folder, "last"))
    wait_until(lambda: "last" in ran(tmp_path), message="the worker has looked at its default queue")
    expected = [f"{line} {n}" for line in ids for n in (0, 1)] + ["left 2", "left 1", "left 0", "never", "once", "last"]
    expected += ["deaf"] * 3 + told
    assert sorted(ran(tmp_path)) == sorted(expected)


def _handed_in(platform: Platform, tmp_path: Path) -> None:
    task_id = platform.submit("calls.nests", str(tmp_path), kwargs={"fail": True})
    found = result(platform, task_id)
    ways = {name: result(platform, one) for name, one in found.items() if isinstance(one, str)}
    assert ways == {"delay": 6, "countdown": 7, "by_name": 8, "signature": 9, "chain": 13, "chord": 10}
    assert [result(platform, one) for one in found["group"]] == [2, 4]
    with tenant_scope(platform.tenant.pk):
        handed_in: Any = app.AsyncResult(str(task_id)).children
        children = [one.id for one in handed_in]
    assert set(children) >= {one for one in found.values() if isinstance(one, str)} | set(found["group"])
    number = Task.objects.unscoped().exclude(pk=task_id).count()  # the test is no tenant
    assert number == 4 + 2 + 3 + 2, "a repeated attempt submits nothing twice"
    wait_until(lambda: ran(tmp_path).count("plain") == 2, message="what is no handler goes where it went")


def _replaced(platform: Platform, tmp_path: Path) -> None:
    before = Task.objects.unscoped().count()  # the test is no tenant
    one = platform.submit("calls.becomes", str(tmp_path))
    assert result(platform, one) == "paid"
    assert ran(tmp_path) == ["becomes", "other 0", "becomes", "other 1"], "its retry runs the task anew"
    many = platform.submit("calls.becomes", str(tmp_path), kwargs={"many": True})
    assert result(platform, many) == [3, 7]
    assert Task.objects.unscoped().count() == before + 4  # the test is no tenant


def _elsewhere_a_tenant_is_needed(platform: Platform, tmp_path: Path, settings: Any) -> None:
    with pytest.raises(NoTenant, match="SLACKWATER_TENANT"):
        calling.note.delay(str(tmp_path), "nobody's")
    with pytest.raises(InvalidInput, match=r"calls\.plain is an ordinary Celery task"):
        (calling.plain.si(str(tmp_path), "first")).apply_async(link=calling.note.si(str(tmp_path), "then"))
    with tenant_scope(platform.tenant.pk):
        with pytest.raises(InvalidInput, match="colour"):
            calling.note.apply_async((str(tmp_path), "late"), colour="red")
        scoped = calling.note.delay(str(tmp_path), "scoped")
    settings.SLACKWATER = {**settings.SLACKWATER, "TENANT": platform.tenant.slug}
    settled = calling.note.delay(str(tmp_path), "settled")
    both = (calling.note.si(str(tmp_path), "first") | calling.note.si(str(tmp_path), "then")).delay()
    assert [result(platform, one.id) for one in (scoped, settled, both)] == ["scoped", "settled", "then"]
    assert sorted(ran(tmp_path)) == ["first", "scoped", "settled", "then"]
    settings.SLACKWATER = {**settings.SLACKWATER, "TENANT": "nobody"}
    with pytest.raises(NoTenant, match="there is no such tenant"):
        calling.note.delay(str(tmp_path), "nobody's")


def _strays_are_refused(platform: Platform, worker: ManagedProcess, tmp_path: Path, redis_url: str) -> None:
    stranger = Celery("stranger", broker=celery_broker_url(redis_url), set_as_current=False)
    stranger.conf.task_default_queue = "slackwater"
    for number in range(3):
        stranger.send_task("calls.note", (str(tmp_path), f"stray {number}"))
    stranger.send_task("calls.plain", (str(tmp_path), "without a seal"))
    # With the seal, but past the ledger: a process of ours that does not know what is a handler.
    past: Any = app.send_task.__self__.send  # type: ignore[attr-defined]
    past("calls.note", (str(tmp_path), "stray"))
    past("inner.nests", (str(tmp_path),))
    app.send_task("calls.plain", (str(tmp_path), "plain"))
    wait_until(lambda: ran(tmp_path) == ["plain"], message="the ordinary task has run")
    assert worker.output.count("a message for the handler calls.note") == 1, "told once"
    assert worker.output.count("refused what came through Redis (message, 1 so far)") == 1, "told once"
    wait_until(lambda: Node.objects.get().stats.get("refused", {}).get("message") == 6, message="all are counted")
    stats: Any = stranger.control.inspect(timeout=5).stats()
    assert stats["w1@test"]["slackwater"]["refused"] == {"calls.note": 1, "inner.nests": 1}
    assert result(platform, platform.submit("calls.note", str(tmp_path), "well")) == "well"
    assert ran(tmp_path) == ["plain", "well"]
