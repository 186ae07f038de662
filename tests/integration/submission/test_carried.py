"""What a Celery task's class declares holds for its tasks in the ledger, and what a call says goes before it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from django.core.exceptions import ValidationError
from django.db import connection

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import ConfigurationError, InvalidInput
from scheduler_ext.core.states import Category, Outcome, Repeats, TaskState
from scheduler_ext.core.work import Export, NodeSpec
from scheduler_ext.task import handlers
from scheduler_ext.task.celery_json import CALL, TYPED
from slackwater_resources.models import Handler
from slackwater_resources.registry import PgNodeStore
from slackwater_tasks.models import RateLimit
from slackwater_tasks.models import Task as Row
from slackwater_tasks.submission.canvas import submit_canvas
from slackwater_tasks.submission.service import submit, submit_many
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import forget_lookups, furnish
from tests.support.hand_worker import HandWorker, raw_cursor

pytestmark = pytest.mark.django_db

DECLARED = {"total_attempts": 6, "execution_cap_s": 30.0, "priority": 4}


@pytest.fixture
def acme() -> Tenant:
    """A tenant, and a handler that declares something of its tasks."""
    furnish()
    Handler.objects.create(name="t.carried", defaults=DECLARED, repeats=Repeats.ASKED)
    return create_tenant("acme", "Acme")


def declared(task_id: Any) -> tuple[int, int, int]:
    row = Row._plain.get(pk=task_id)
    return row.total_attempts, row.cap_ms, row.priority


def test_a_submission_goes_before_what_its_handler_declares(acme: Tenant) -> None:
    plain = submit(acme, {"handler": "t.carried"})
    own = submit(acme, {"handler": "t.carried", "total_attempts": 3, "execution_cap_s": 5})
    many = submit_many(acme, [{"handler": "t.carried"}, {"handler": "t.carried", "priority": 0}] * 2)
    assert declared(plain.task_ids[0]) == (6, 30_000, 4)
    assert declared(own.task_ids[0]) == (3, 5_000, 4)
    assert [declared(one)[2] for one in many.task_ids] == [4, 0, 4, 0]


def test_urgency_by_handler_and_the_plan_before_it(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_exports", dict(handlers.exported()))
    app = Celery("urgency", set_as_current=False)
    debit: Any = app.task(name="bank.debit", shared=False)(forget_lookups)  # takes nothing
    handlers.export(debit, category="urgent", delay_tolerance_s=2)

    def stored(**fields: Any) -> tuple[int, int]:
        row = Row._plain.get(pk=submit(acme, {"handler": "bank.debit", **fields}).task_ids[0])
        return row.category, row.delay_tolerance_ms

    assert stored() == (Category.URGENT, 2_000)
    assert stored(category="offpeak") == (Category.OFFPEAK, 2_000)
    acme.plan.handler_defaults = {"bank.*": {"category": "delayable"}, "mail.*": {"delay_tolerance_s": 1}}
    acme.plan.full_clean()
    assert stored() == (Category.DELAYABLE, 2_000), "the plan goes before the handler"
    assert stored(category="urgent", delay_tolerance_s=9) == (Category.URGENT, 9_000), "and the submission before both"
    wrong: Any
    for wrong in (
        [],
        {"a": 1},
        {"a": {"tier": "basic"}},
        {"a": {"category": "soon"}},
        {"a": {"delay_tolerance_s": -1}},
    ):
        acme.plan.handler_defaults = wrong
        with pytest.raises(ValidationError, match="handler_defaults"):
            acme.plan.full_clean()
    for given in ({"category": "soon"}, {"delay_tolerance_s": -1.0}):
        with pytest.raises(ConfigurationError):
            handlers.export(debit, **given)


def test_the_options_of_a_call_become_fields(acme: Tenant) -> None:
    app = Celery("carried", set_as_current=False)
    f: Any = app.task(name="t.carried", shared=False)(declared)
    due = datetime.now(UTC) + timedelta(hours=1)
    price = f.si(Decimal("1.10"), {2}).set(eta=due, expires=due + timedelta(minutes=5), time_limit=7, priority=8,
                                           queue="high", headers={"who": "ann"}, soft_time_limit=3)  # fmt: skip
    row = Row._plain.get(pk=submit_canvas(acme, price).task_ids[0])
    assert (row.start_at, row.expires_at) == (due, due + timedelta(minutes=5))
    assert (row.cap_ms, row.priority, row.total_attempts) == (7_000, 8, 6)
    assert row.args == [{"__type__": "decimal", "__value__": "1.10"}, [2]]
    assert row.kwargs == {CALL: {"headers": {"who": "ann"}, "soft_time_limit": 3, TYPED: True}}


@pytest.mark.parametrize(("option", "wrong"), [
    ("countdown", "soon"), ("countdown", True), ("countdown", float("inf")), ("countdown", 1e18), ("eta", "tomorrow"),
    ("eta", 5), ("expires", "never"), ("expires", True), ("expires", float("nan")), ("priority", "high"), ("priority", -1),
    ("priority", 2.5),
])  # fmt: skip
def test_a_wrong_option_of_a_call_is_refused_by_its_name(acme: Tenant, option: str, wrong: Any) -> None:
    app = Celery("carried", set_as_current=False)
    f: Any = app.task(name="t.carried", shared=False)(declared)
    with pytest.raises(InvalidInput) as refused:
        submit_canvas(acme, f.si(1).set(**{option: wrong}))
    assert refused.value.field == f"canvas.options.{option}"
    assert not Row._plain.exists()


@pytest.mark.parametrize("repeats", list(Repeats))
def test_a_run_is_repeated_as_its_handler_says(acme: Tenant, repeats: Repeats) -> None:
    Handler.objects.update(repeats=repeats)
    worker = HandWorker()
    again = {
        Repeats.ALWAYS: {Outcome.FAILED, Outcome.WORKER_LOST, Outcome.CAP_EXCEEDED, Outcome.RETRY},
        Repeats.LOST: {Outcome.WORKER_LOST, Outcome.RETRY},
        Repeats.ASKED: {Outcome.RETRY},
    }
    for outcome in again[Repeats.ALWAYS]:
        (task_id,) = submit(acme, {"handler": "t.carried"}).task_ids
        worker.run(task_id, outcome=outcome)
        ended = Row._plain.get(pk=task_id).state
        assert ended == (None if outcome in again[repeats] else TaskState.FAILED), outcome


def test_a_node_keeps_what_its_handlers_declare() -> None:
    def register(rate: tuple[int, int] | None) -> None:
        export = Export(name="t.rated", task="t.rated", defaults={"priority": 2}, repeats=Repeats.LOST, rate=rate)
        spec = NodeSpec(name="n1", hostname="h", incarnation=str(uuid4()), cell="default", capacity=(1,) * 6, slots={},
                        labels=(), sandbox="process")  # fmt: skip
        with raw_cursor() as cur:
            cur.execute("SELECT 1")  # the test's transaction begins, else the node's would be the outermost, and stay
            database = type("Database", (), {"conn": cur.connection})
            PgNodeStore(SchedulerConf(), database).register(spec, {"t.rated": export})

    def rates() -> list[tuple[int, int]]:
        return list(RateLimit.objects.filter(handler__name="t.rated").values_list("starts", "per_s"))

    register((2, 60))
    handler = Handler.objects.get(name="t.rated")
    assert (handler.defaults, handler.repeats, rates()) == ({"priority": 2}, Repeats.LOST, [(2, 60)])
    register((4, 60))
    assert rates() == [(4, 60)]
    RateLimit.objects.update(starts=9)  # an operator
    register((5, 60))
    assert rates() == [(9, 60)], "an operator's word stays"
    RateLimit.objects.all().delete()
    register((6, 1))
    register(None)
    assert rates() == []
    assert connection.in_atomic_block
