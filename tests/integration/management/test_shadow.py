"""Tasks in the shadow stay Celery's; what it does with them is noted beside, and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from celery import Celery, chain, signals
from celery.app.trace import build_tracer
from django.core.management import CommandError, call_command
from django.db import transaction

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.task import handlers
from scheduler_ext.worker.child import celery_run
from slackwater import shadow
from slackwater_conf import Conf, WrongSetting
from slackwater_tasks.control import shadow as notes
from slackwater_tasks.models import ShadowCall, ShadowRun
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_scope

pytestmark = pytest.mark.django_db
app = Celery("shaded", broker="memory://shaded", set_as_current=False)
RECEIVERS = (
    (signals.task_prerun, shadow._began),
    (signals.task_postrun, shadow._ended),
    (signals.task_revoked, shadow._revoked),
)


@app.task(name="shaded.add")
def add(x: int, y: int = 0) -> int:
    """The sum."""
    return x + y


@app.task(name="shaded.odd", bind=True, max_retries=3, time_limit=60)
def odd(self: Any, how: str = "") -> Any:
    """Do what only Celery takes."""
    if how == "replace":
        raise self.replace(self.s("replaced"))
    if how == "retry" and self.request.retries == 0:
        raise self.retry(countdown=0)
    return float("nan") if how == "nan" else how


@app.task(name="plain.add")
def plain(x: int = 0) -> int:
    """Nobody watches it."""
    return x


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch, tenant: Tenant, settings: Any) -> Iterator[None]:
    """The shadow, for the time of a test; a broker without messages."""
    settings.SLACKWATER = {**settings.SLACKWATER, "TENANT": tenant.slug}
    monkeypatch.setattr(Celery, "send_task", Celery.send_task)
    monkeypatch.setattr(handlers, "_shadow", ["shaded.*"])
    monkeypatch.setattr(notes, "missed", notes._Missed())
    before = celery_run.listened()
    shadow.install()
    shadow.install()
    assert celery_run.listened() is before, "the fast path of durable tasks stays"
    yield
    for signal, receiver in RECEIVERS:
        assert signal.disconnect(receiver)
    messages()


def messages() -> list[Any]:
    """What lies in the broker."""
    found = []
    with app.connection_for_read() as connection:
        for name in ("celery", "slow"):
            queue = connection.SimpleQueue(name)
            while queue.qsize():
                found.append(message := queue.get_nowait())
                message.ack()
            queue.close()
    return found


def run(times: int = 1) -> None:
    """Run what was published, as a worker's process does."""
    for message in messages() * times:
        task = app.tasks[message.headers["task"]]
        args, kwargs, embedded = message.payload
        build_tracer(task.name, task, app=app)(message.headers["id"], args, kwargs, {**message.headers, **embedded})


def compare(*options: str) -> tuple[int, dict[str, Any]]:
    """The exit code of the comparison, and what it says."""
    out, code = StringIO(), 0
    try:
        call_command("doctor", "--compare", "--grace", "0", "--json", *options, stdout=out)
    except SystemExit as end:
        code = int(end.code or 0)
    found: dict[str, Any] = json.loads(out.getvalue())
    return code, found


def test_what_celery_does_is_noted_and_compared(tenant: Tenant) -> None:
    add.delay(1, 2)
    add.apply_async((3,), {"y": 4}, queue="slow", priority=4)
    plain.delay(1)
    chain(add.s(1), add.s(2)).delay()
    run()
    run()
    code, found = compare("--task", "shaded.add")
    assert (code, [(one["kind"], one["option"]) for one in found["differences"]]) == (0, [("option dropped", "queue")])
    assert (found["tasks"][0]["calls"], found["tasks"][0]["begun"]) == (4, 4), "each step of a canvas"
    assert found["tasks"][0]["promised_s"] == tenant.plan.delay_tolerance_s["delayable"]
    noted = ShadowCall.objects.unscoped().get(fields={"priority": 4})  # the test is no tenant
    assert (noted.tenant_id, noted.dropped, noted.why, noted.size) == (tenant.pk, ["queue"], "", len('[[3],{"y":4}]'))

    lost = add.delay(1)
    messages()
    odd.delay("replace")
    odd.delay("retry")
    run()
    run()
    assert list(ShadowRun.objects.filter(outcome="RETRY").values_list("retries", flat=True)) == [0]
    odd.delay("twice")
    run(times=2)
    odd.delay("nan")
    odd.apply_async(("named",), task_id="mine")
    add.apply_async(("text",), priority=3)
    add.apply_async((1,), link=plain.s())
    plain.apply_async((1,), link=add.s())
    later = add.apply_async((1,), countdown=3600)
    with transaction.atomic():
        rolled_back = odd.delay("rolled back")
        transaction.set_rollback(True)
    signals.task_revoked.send(sender=add, request=type("Request", (), {"id": later.id}), terminated=False, expired=True)
    for _ in range(2):
        run()

    code, found = compare()
    assert code == 1
    said = {(one["kind"], one["task"], one["option"]): one for one in found["differences"]}
    assert said.keys() == {
        ("never run", "shaded.add", ""), ("run twice", "shaded.odd", ""),
        ("refused", "shaded.odd", "task_id"), ("refused", "shaded.add", "args[0]"), ("refused", "shaded.add", "canvas"),
        ("refused", "plain.add", ""), ("result", "shaded.odd", ""), ("taken back", "shaded.odd", ""),
        ("option dropped", "shaded.add", "queue"),
    }  # fmt: skip
    assert said["never run", "shaded.add", ""]["example"] == lost.id
    assert said["taken back", "shaded.odd", ""]["example"] == rolled_back.id
    assert said["run twice", "shaded.odd", ""]["count"] == 1, "a retry is no second run"
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("doctor", "--compare", "--since", "1h", stdout=out)
    assert "Out of range float values" in out.getvalue()
    with pytest.raises(CommandError, match=r"^since: must be a moment"):
        call_command("doctor", "--compare", "--since", "tomorrow")
    with pytest.raises(CommandError, match=r"^app: name the app"):
        call_command("doctor")


def test_nothing_of_it_fails_the_caller(monkeypatch: pytest.MonkeyPatch, settings: Any, tenant: Tenant) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(notes, "NOTE_CALL", "INSERT INTO nowhere VALUES (1)")
        with transaction.atomic():
            add.delay(1)
            Tenant.objects.filter(pk=tenant.pk).update(name="Still there")
    tenant.refresh_from_db()
    assert (tenant.name, notes.missed.count) == ("Still there", 1)
    settings.SLACKWATER = {**settings.SLACKWATER, "TENANT": ""}
    add.delay(2)
    with tenant_scope(tenant.pk):
        add.delay(3)
    run()
    rows = list(ShadowCall.objects.unscoped().order_by("id"))  # the test is no tenant
    assert [(row.missed, row.field, row.tenant_id) for row in rows] == [(1, "tenant", None), (0, "", tenant.pk)]
    assert (compare()[1]["missed"], notes.missed.count) == (1, 0)


def test_a_name_is_durable_or_in_the_shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    for durable, shaded in ((["orders.*"], ["orders.mail"]), (["orders.mail"], ["orders.*"]), (["*"], ["orders.*"])):
        with pytest.raises(WrongSetting, match="SHADOW"):
            Conf.from_mapping({"DURABLE": durable, "SHADOW": shaded})
    Conf.from_mapping({"DURABLE": ["orders.*"], "SHADOW": ["mail.*"]})
    monkeypatch.setattr(handlers, "_exports", {})
    monkeypatch.setattr(handlers, "_patterns", ["*.add"])
    with pytest.raises(ConfigurationError, match=r"shaded\.add is durable and in SHADOW"):
        handlers.export_declared(app)
