"""Single submissions stored together: each gets what it would get alone, whatever becomes of its neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from scheduler_ext.core.errors import (
    IdempotencyMismatch,
    InvalidInput,
    LimitExceeded,
    NotGranted,
    QuotaExceeded,
    SlackwaterError,
    TooLarge,
    UnknownDependency,
)
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import IdempotencyKey, LiveTask, Task
from slackwater_tasks.submission import limits, many_tenants, refusal_cache, service
from slackwater_tasks.submission.group_commit import submit_all, submit_each
from slackwater_tasks.submission.service import Single, Submission
from slackwater_tasks.submission.store import Wish
from slackwater_tenants.models import CurrentCounter, Plan, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import HANDLER

pytestmark = pytest.mark.django_db(transaction=True)
TRIGGER = """
CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.name = 'poison' THEN RAISE EXCEPTION 'poisoned' USING ERRCODE = '22000'; END IF;
    IF NEW.name = 'end' THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER poison BEFORE INSERT ON slackwater_tasks_task FOR EACH ROW EXECUTE FUNCTION poison()
"""


@pytest.fixture
def trigger() -> Iterator[None]:
    """A database that objects to tasks of one name, and ends the session of those of another."""
    with connection.cursor() as cur:
        cur.execute(TRIGGER)
    yield
    connection.close()
    with connection.cursor() as cur:
        cur.execute("DROP FUNCTION poison CASCADE")


def limit(tenant: Tenant, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(tenant.plan, name, value)
    tenant.plan.save()


def single(key: str | None = None, **fields: Any) -> Single:
    return Single(data={"handler": HANDLER, **fields}, actor="test", idempotency_key=key)


def kinds(answers: list[Submission | Exception]) -> list[type]:
    return [type(answer) for answer in answers]


def transactions() -> int:
    """How many transactions stored the live tasks."""
    with connection.cursor() as cur:
        cur.execute("SELECT count(DISTINCT xmin::text) FROM slackwater_tasks_livetask")
        return int(cur.fetchone()[0])


def counted(tenant: Tenant) -> tuple[int, int, int]:
    """Tasks, live ones, and what the counter says."""
    return (
        Task._plain.filter(tenant=tenant).count(),
        LiveTask._plain.filter(tenant=tenant).count(),
        CurrentCounter.objects.get(tenant=tenant).unfinished,
    )


@pytest.mark.parametrize("n", [2, 40])
def test_they_are_one_transaction(tenant: Tenant, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    execute = psycopg.RawCursor.execute

    def noted(cursor: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        statements.append(str(query))
        return execute(cursor, query, *args, **kwargs)

    monkeypatch.setattr(psycopg.RawCursor, "execute", noted)
    answers = submit_each(tenant, [single(name=f"t{i}", args=[i]) for i in range(n)])
    assert kinds(answers) == [Submission] * n
    assert sum("UPDATE slackwater_tenants_tenantcounter" in statement for statement in statements) == 1
    assert (transactions(), counted(tenant)) == (1, (n, n, n))
    for i, answer in enumerate(answers):
        assert isinstance(answer, Submission)
        task = Task._plain.get(pk=answer.task_ids[0])
        assert (task.name, task.args, task.submitted_by, answer.created) == (f"t{i}", [i], "test", True)


def test_one_alone_is_submitted_as_ever(tenant: Tenant) -> None:
    with CaptureQueriesContext(connection) as queries:
        (answer,) = submit_each(tenant, [single()])
    assert type(answer) is Submission
    assert not any("slackwater_tasks_task" in query["sql"] for query in queries), (
        "its one statement does not go through Django"
    )
    assert counted(tenant) == (1, 1, 1)


BAD: list[tuple[Any, type[SlackwaterError], str | None]] = [
    ({"handler": HANDLER, "priority": "high"}, InvalidInput, "priority"),
    ({"handler": HANDLER, "colour": 1}, InvalidInput, "colour"),
    ({"handler": "demo.unknown"}, InvalidInput, "handler"),
    ({"handler": HANDLER, "tier": "none"}, InvalidInput, "tier"),
    ({"handler": HANDLER, "args": ["x" * 2_000_000]}, TooLarge, "args"),
    ({"handler": HANDLER, "depends_on": ["good"]}, UnknownDependency, "depends_on[0]"),
    ({"script": "0" * 64}, NotGranted, "script"),
    ({"handler": HANDLER, "idempotency_key": "k" * 201}, InvalidInput, "idempotency_key"),
]  # fmt: skip


def test_bad_ones_are_told_as_if_they_were_alone_and_harm_nobody(tenant: Tenant) -> None:
    limit(tenant, scripts=False, max_payload_bytes=1_000_000)
    group = [single(name="good")]
    for data, _, _ in BAD:
        group += [Single(data=data, actor="test"), single(name="good")]
    answers = submit_each(tenant, group)
    assert kinds(answers[::2]) == [Submission] * (len(BAD) + 1)
    assert counted(tenant) == (len(BAD) + 1,) * 3
    for (data, kind, field), answer in zip(BAD, answers[1::2], strict=True):
        assert isinstance(answer, kind), (data, answer)
        assert isinstance(answer, SlackwaterError)
        assert answer.field == field
        with pytest.raises(kind) as caught:
            service.submit(tenant, data)
        assert (caught.value.field, caught.value.message, caught.value.extra) == (
            answer.field, answer.message, answer.extra,
        )  # fmt: skip


@pytest.mark.parametrize("before", [0, 3])
def test_the_first_that_fit_are_accepted_in_their_order(tenant: Tenant, before: int) -> None:
    limit(tenant, burst=10, tasks_per_hour=7)
    for _ in range(before):
        service.submit(tenant, {"handler": HANDLER})
    answers = submit_each(tenant, [single(name=f"t{i}") for i in range(25)])
    room = 10 - before
    assert kinds(answers) == [Submission] * room + [LimitExceeded] * (25 - room)
    assert counted(tenant) == (10, 10, 10)
    refused = answers[-1]
    assert isinstance(refused, LimitExceeded)
    assert refused.retry_after is not None
    assert 500 < refused.retry_after <= 3600 / 7, "when one more would be accepted"
    assert refused.extra["burst"] == 10
    assert refusal_cache.known(tenant) is not None, "the door knows it from now on"


def test_a_limit_reached_costs_few_transactions(tenant: Tenant) -> None:
    limit(tenant, burst=100, tasks_per_hour=1)
    service.submit_many(tenant, [{"handler": HANDLER}] * 60)
    with CaptureQueriesContext(connection) as queries:
        answers = submit_each(tenant, [single() for _ in range(90)])
    assert kinds(answers) == [Submission] * 40 + [LimitExceeded] * 50
    assert sum("UPDATE slackwater_tenants_tenantcounter" in query["sql"] for query in queries) <= 3
    assert transactions() == 2


def test_keys_over_the_limit_are_not_written_to_be_refused(tenant: Tenant) -> None:
    limit(tenant, burst=10, tasks_per_hour=1)
    with CaptureQueriesContext(connection) as queries:
        answers = submit_each(tenant, [single(f"k{i}") for i in range(40)])
    assert kinds(answers) == [Submission] * 10 + [LimitExceeded] * 30
    assert sum("UPDATE slackwater_tenants_tenantcounter" in query["sql"] for query in queries) <= 3
    repeat, new = submit_each(tenant, [single("k3"), single("k30")])
    assert isinstance(repeat, Submission)
    assert (repeat.created, type(new)) == (False, LimitExceeded)


def test_the_quota_and_the_share_of_urgent_work_hold(tenant: Tenant) -> None:
    limit(tenant, max_waiting=5)
    answers = submit_each(tenant, [single() for _ in range(9)])
    assert kinds(answers) == [Submission] * 5 + [QuotaExceeded] * 4
    limit(tenant, max_waiting=1000, max_urgent_permille=0)
    answers = submit_each(tenant, [single(category=c) for c in ("urgent", "delayable", "urgent", "offpeak")])
    assert kinds(answers) == [NotGranted, Submission, NotGranted, Submission]
    assert isinstance(answers[0], NotGranted)
    assert answers[0].field == "category"
    assert counted(tenant) == (7, 7, 7)


def test_more_than_the_burst_are_not_too_many_as_each_is_one(tenant: Tenant) -> None:
    limit(tenant, burst=4, tasks_per_hour=1_000_000_000)
    assert kinds(submit_each(tenant, [single() for _ in range(30)])) == [Submission] * 30


# -- idempotency keys -------------------------------------------------------------------------------------------------
def test_different_keys_go_together(tenant: Tenant) -> None:
    answers = submit_each(tenant, [single(f"k{9 - i}") if i % 2 else single() for i in range(10)])
    assert kinds(answers) == [Submission] * 10
    assert (transactions(), counted(tenant)) == (1, (10, 10, 10))
    again = submit_each(tenant, [single(f"k{9 - i}") for i in range(1, 10, 2)])
    assert [a.task_ids for a in again] == [a.task_ids for a in answers[1::2]]  # type: ignore[union-attr]
    assert not any(a.created for a in again)  # type: ignore[union-attr]
    assert counted(tenant) == (10, 10, 10)


def test_repeats_in_one_group_are_one_task(tenant: Tenant) -> None:
    group = [
        single("one"),
        single(),
        single("one"),
        single(idempotency_key="one"),
        single("one", name="other"),
        single(),
    ]
    first, plain, repeat, inner, other, last = submit_each(tenant, group)
    assert isinstance(first, Submission)
    assert isinstance(repeat, Submission)
    assert (first.created, repeat.created, repeat.task_ids) == (True, False, first.task_ids)
    assert type(plain) is type(last) is Submission
    assert isinstance(inner, Submission)
    assert (inner.created, inner.task_ids) == (False, first.task_ids), "wherever the key stands"
    assert isinstance(other, IdempotencyMismatch)
    assert counted(tenant) == (3, 3, 3)
    assert IdempotencyKey.objects.count() == 1


def test_a_refused_one_keeps_no_key(tenant: Tenant) -> None:
    limit(tenant, burst=2, tasks_per_hour=1)
    answers = submit_each(tenant, [single(f"k{i}") for i in range(6)])
    assert kinds(answers) == [Submission] * 2 + [LimitExceeded] * 4
    assert set(IdempotencyKey.objects.values_list("key", flat=True)) == {"k0", "k1"}
    limit(tenant, burst=50)
    answers = submit_each(tenant, [single(f"k{i}") for i in range(6)])
    assert [a.created for a in answers] == [False, False, True, True, True, True]  # type: ignore[union-attr]
    assert counted(tenant) == (6, 6, 6)


# -- the database objects ---------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("trigger")
def test_what_the_database_objects_to_fails_alone(tenant: Tenant) -> None:
    answers = submit_each(tenant, [single(name="poison" if i == 7 else "good") for i in range(20)])
    assert isinstance(answers.pop(7), Exception)
    assert kinds(answers) == [Submission] * 19
    assert counted(tenant) == (19, 19, 19)


@pytest.mark.usefixtures("trigger")
def test_when_the_session_breaks_nothing_is_stored_and_nothing_is_tried_again(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    together = service.submit_together

    def noted(tenant: Tenant, singles: Any) -> Any:
        tries.append(len(singles))
        return together(tenant, singles)

    monkeypatch.setattr(service, "submit_together", noted)
    answers = submit_each(tenant, [single(name="end" if i == 7 else "good") for i in range(20)])
    assert len(answers) == 20
    assert all(isinstance(answer, OperationalError) for answer in answers)
    assert tries == [20], "it might have been stored: whoever asked must say whether to try again"
    connection.close()
    assert counted(tenant) == (0, 0, 0)


def test_checkpoints_mutexes_rates_and_webhooks_are_written_with_the_others(tenant: Tenant) -> None:
    fields: list[dict[str, Any]] = [
        {"checkpoints": True}, {"mutex_key": "m", "mutex_scope": "dependent"}, {"rate_key": "r"}, {"tags": ["a", "b"]},
        {"start_at": "2031-01-01T00:00:00Z"}, {"retry": {"base_s": 1}},
    ]  # fmt: skip
    alone = [service.submit(tenant, {"handler": HANDLER, **some}).task_ids[0] for some in fields]
    answers = submit_each(tenant, [single(**some) for some in fields])
    assert kinds(answers) == [Submission] * len(fields)
    own = {"id", "submitted_at", "submitted_by", "task_id", "rank", "latest_start", "promote_at"}
    for one, answer in zip(alone, answers, strict=True):
        assert isinstance(answer, Submission)
        for model in (Task, LiveTask):
            rows = [model._plain.filter(pk=pk).values().get() for pk in (one, answer.task_ids[0])]
            first, second = ({k: v for k, v in row.items() if k not in own} for row in rows)
            assert first == second
    with connection.cursor() as cur:
        cur.execute("SELECT count(*) FROM slackwater_tasks_livetask WHERE alone")
        assert cur.fetchone() == (2,)


def crowd(tenant: Tenant) -> list[Tenant]:
    """Nine tenants: more than one statement takes."""
    return [tenant, *(create_tenant(f"more{n}", f"More {n}", tenant.plan.slug) for n in range(8))]


def test_those_of_several_tenants_are_one_transaction_for_each_seven(tenant: Tenant) -> None:
    tenants = crowd(tenant)
    found = submit_all([(each, [single(), single(args=[n])]) for n, each in enumerate(tenants)])
    assert [kinds([*answers]) for answers in found] == [[Submission] * 2] * 9
    assert transactions() == 2
    assert [counted(each) for each in tenants] == [(2, 2, 2)] * 9
    for n, (each, (_, answer)) in enumerate(zip(tenants, found, strict=True)):
        assert isinstance(answer, Submission)
        task = Task._plain.get(pk=answer.task_ids[0])
        assert (task.tenant_id, task.args, task.submitted_by) == (each.pk, [n], "test")
    assert set(limits.noted.left) >= {each.pk for each in tenants}, "each is told what is left of its own limits"


def test_a_tenant_whose_counters_are_held_or_that_is_refused_harms_no_other(tenant: Tenant) -> None:
    tenants = crowd(tenant)[:4]
    poor = Plan.objects.create(slug="poor", name="P", max_waiting=0)
    Tenant.objects.filter(pk=tenants[1].pk).update(plan=poor)
    tenants[1] = Tenant.objects.select_related("plan").get(pk=tenants[1].pk)
    wishes = [Wish(tenant=each, items=[{"handler": HANDLER}], actors=["test"]) for each in tenants]
    with connect() as other, other.transaction():
        other.execute(
            "SELECT 1 FROM slackwater_tenants_tenantcounter WHERE tenant_id = %s FOR UPDATE", (tenants[2].pk,)
        )
        stored = many_tenants.submit_if_free(wishes)
    assert [ids is not None for ids in stored] == [True, False, False, True]
    assert [counted(each) for each in tenants] == [(1, 1, 1), (0, 0, 0), (0, 0, 0), (1, 1, 1)]
    found = submit_all([(each, [single(), single(colour=1)]) for each in tenants])
    assert [kinds([*answers]) for answers in found] == [
        [QuotaExceeded if each.plan == poor else Submission, InvalidInput] for each in tenants
    ]


def test_what_the_database_objects_to_is_its_own_tenants_alone(tenant: Tenant, trigger: None) -> None:
    tenants = crowd(tenant)[:3]
    names = ["good", "poison", "good"]
    found = submit_all([(each, [single(name=name)]) for each, name in zip(tenants, names, strict=True)])
    assert [isinstance(answer, Submission) for (answer,) in found] == [True, False, True]
    assert [counted(each) for each in tenants] == [(1, 1, 1), (0, 0, 0), (1, 1, 1)]


def test_two_that_store_for_the_same_tenants_at_once_count_exactly(tenant: Tenant) -> None:
    tenants = crowd(tenant)[:3]

    def work() -> None:
        try:
            for _ in range(40):
                found = submit_all([(each, [single()]) for each in tenants])
                assert [kinds([*answers]) for answers in found] == [[Submission]] * 3
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        for job in [threads.submit(work) for _ in range(4)]:
            job.result()
    assert [counted(each) for each in tenants] == [(160, 160, 160)] * 3
