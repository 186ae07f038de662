"""A task like one that came a moment ago is stored without working out again what they have in common: as that one was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError, transaction
from django.utils import timezone

from scheduler_ext.core.errors import InvalidInput, LimitExceeded, NotGranted, QuotaExceeded, TooLarge
from slackwater_resources.models import Handler
from slackwater_tasks.control import policies as choosing
from slackwater_tasks.ledger import active_policies, reference_cache
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import LiveTask, Task
from slackwater_tasks.submission import familiar, many_tenants, refusal_cache, service
from slackwater_tasks.submission.service import submit
from slackwater_tasks.submission.store import Wish
from slackwater_tenants.models import CurrentCounter, Plan, Tenant, TenantCounter
from tests.support.api import HANDLER, client_of, furnish

pytestmark = pytest.mark.django_db(transaction=True)
ECHO = {"handler": HANDLER}
KINDS: list[dict[str, Any]] = [
    {},
    {"args": [1, "two"], "kwargs": {"three": [3, "3\\", "\t\"'"]}},
    {"category": "urgent", "priority": 7, "tier": "regular"},
    {"delay_tolerance_s": 1.5, "execution_cap_s": 9, "on_late": "give_up", "total_attempts": 1},
    {"mutex_key": "k", "mutex_limit": 3, "rate_key": "r"},
    {"category": "offpeak", "condition": "all_done"},
]
HOLD = "SELECT 1 FROM slackwater_tenants_tenantcounter WHERE tenant_id = %s FOR UPDATE"
OWN = {"id", "task_id", "args", "kwargs", "submitted_at", "rank", "latest_start", "promote_at"}


@pytest.fixture
def tenant() -> Tenant:
    furnish()
    return client_of("familiar").tenant


@pytest.fixture
def known_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """A context in which nothing goes the ordinary way."""

    @contextmanager
    def held() -> Iterator[None]:
        def refuse(*_: Any, **__: Any) -> Any:
            raise AssertionError("it went the ordinary way")

        with monkeypatch.context() as patch:
            patch.setattr(service, "parse_task", refuse)
            yield

    return held


def limit(tenant: Tenant, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(tenant.plan, name, value)
    tenant.plan.save()


def rows(task_id: UUID) -> tuple[dict[str, Any], dict[str, Any]]:
    wide = Task.objects.unscoped().filter(pk=task_id).values().get()  # unscoped: of all tenants
    return wide, LiveTask.objects.unscoped().filter(pk=task_id).values().get()  # unscoped: of all tenants


def moments(wide: dict[str, Any], narrow: dict[str, Any]) -> tuple[Any, ...]:
    """What goes by the moment of submission, counted from it."""
    at = wide["submitted_at"]
    assert abs(timezone.now() - at) < timedelta(minutes=1)
    since_era = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    promoted = narrow["promote_at"] - at if narrow["promote_at"] else None
    return narrow["latest_start"] - at, promoted, narrow["rank"] - since_era


@pytest.mark.parametrize("fields", KINDS, ids=lambda fields: next(iter(fields), "plain"))
def test_it_is_stored_as_the_first_of_its_kind_was(tenant: Tenant, known_only: Any, fields: dict[str, Any]) -> None:
    data = {**ECHO, **fields}
    (first,) = submit(tenant, data, actor="me").task_ids
    with known_only():
        (second,) = submit(tenant, {**data, "args": fields.get("args", ["more"])}, actor="me").task_ids
    assert first != second
    (wide, narrow), (like, thin) = rows(first), rows(second)
    assert {k: v for k, v in wide.items() if k not in OWN} == {k: v for k, v in like.items() if k not in OWN}
    assert {k: v for k, v in narrow.items() if k not in OWN} == {k: v for k, v in thin.items() if k not in OWN}
    assert moments(wide, narrow) == moments(like, thin)
    assert (like["args"], like["kwargs"]) == (fields.get("args", ["more"]), fields.get("kwargs", {}))
    counter = CurrentCounter.objects.get(tenant=tenant)
    assert (counter.unfinished, counter.submitted) == (2, 2)
    assert counter.urgent_unfinished == (2 if fields.get("category") == "urgent" else 0)


@pytest.mark.parametrize("fields", KINDS, ids=lambda fields: next(iter(fields), "plain"))
def test_those_of_several_tenants_are_stored_as_the_first_were(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    tenants = [tenant, client_of("another").tenant]

    def wishes(n: int) -> list[Wish]:
        items = [{**ECHO, **fields, "args": fields.get("args", [n])}, {**ECHO, "args": [n, "other"]}]
        return [Wish(tenant=each, items=items, actors=["me", "you"]) for each in tenants]

    firsts, _ = many_tenants.submit_if_free(wishes(1)), many_tenants.submit_if_free(wishes(1))
    monkeypatch.setattr(many_tenants, "parse_tasks", None)  # the ordinary way is closed
    seconds = many_tenants.submit_if_free(wishes(2))
    for first, second in zip(firsts, seconds, strict=True):
        assert first is not None
        assert second is not None
        for one, other in zip(first, second, strict=True):
            (wide, narrow), (like, thin) = rows(one), rows(other)
            assert {k: v for k, v in wide.items() if k not in OWN} == {k: v for k, v in like.items() if k not in OWN}
            assert {k: v for k, v in narrow.items() if k not in OWN} == {k: v for k, v in thin.items() if k not in OWN}
            assert moments(wide, narrow) == moments(like, thin)
        given = [rows(task_id)[0] for task_id in second]
        assert [row["args"] for row in given] == [fields.get("args", [2]), [2, "other"]]
        assert [row["submitted_by"] for row in given] == ["me", "you"]
    counters = [(c.unfinished, c.submitted, c.urgent_unfinished) for c in TenantCounter.objects.all()]
    assert counters == [(6, 6, 3 if fields.get("category") == "urgent" else 0)] * 2


def test_of_several_tenants_each_is_held_to_its_own_limits(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [client_of(name).tenant for name in ("held", "poor")]
    wishes = [Wish(tenant=each, items=[ECHO], actors=["me"]) for each in (tenant, *others)]
    for _ in range(2):
        assert None not in many_tenants.submit_if_free(wishes)
    Plan.objects.filter(pk=others[1].plan.pk).update(max_waiting=2)
    poor = Tenant.objects.select_related("plan").get(pk=others[1].pk)
    wishes[2] = Wish(tenant=poor, items=[ECHO], actors=["me"])
    assert familiar.submit_for_many(wishes, 0) is None, "another plan, another kind"
    with connect() as somebody, somebody.transaction():
        somebody.execute(HOLD, (others[0].pk,))
        stored = many_tenants.submit_if_free(wishes)
    assert [ids is not None for ids in stored] == [True, False, False]
    monkeypatch.setattr(many_tenants, "parse_tasks", None)
    stored = many_tenants.submit_if_free(wishes[:2])
    assert None not in stored
    counted = {counter.tenant_id: counter.unfinished for counter in TenantCounter.objects.all()}
    assert [counted[each.pk] for each in (tenant, *others)] == [4, 3, 2]


def test_what_fails_while_a_kind_is_made_fails_before_anything_is_stored(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    wishes = [Wish(tenant=each, items=[ECHO], actors=["me"]) for each in (tenant, client_of("another").tenant)]
    assert None not in many_tenants.submit_if_free(wishes)

    def fail(*_: Any) -> Any:
        raise OperationalError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(familiar, "_kind", fail)
        with pytest.raises(OperationalError):
            many_tenants.submit_if_free(wishes)
    assert [counter.unfinished for counter in TenantCounter.objects.all()] == [1, 1]
    assert None not in many_tenants.submit_if_free(wishes)


def test_the_limits_are_met_exactly(tenant: Tenant, known_only: Any) -> None:
    limit(tenant, max_waiting=3, burst=100)
    submit(tenant, ECHO)
    with known_only():
        for _ in range(2):
            submit(tenant, ECHO)
        with pytest.raises(QuotaExceeded):
            submit(tenant, ECHO)
    limit(tenant, max_waiting=100, burst=3, tasks_per_hour=6)
    TenantCounter.objects.update(theoretical_arrival=None)
    submit(tenant, ECHO)
    with known_only():
        for _ in range(2):
            submit(tenant, ECHO)
        with pytest.raises(LimitExceeded):
            submit(tenant, ECHO)
        assert refusal_cache.known(tenant) is not None
    assert CurrentCounter.objects.get(tenant=tenant).unfinished == Task.objects.unscoped().count() == 6  # unscoped: all


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"handlers": ["other.*"]}, NotGranted),
        ({"tiers": ["premium"]}, NotGranted),
        ({"max_payload_bytes": 3}, TooLarge),
    ],
    ids=["handlers", "tiers", "max_payload_bytes"],
)
def test_a_change_of_the_plan_is_seen_at_once(tenant: Tenant, change: dict[str, Any], error: type[Exception]) -> None:
    data = {**ECHO, "args": ["long enough"]}
    submit(tenant, data)
    limit(tenant, **change)
    with pytest.raises(error):
        submit(Tenant.objects.select_related("plan").get(pk=tenant.pk), data)


def test_a_kind_outlasts_looks_at_the_same_orders(
    tenant: Tenant, known_only: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(familiar, "KEPT_S", 60.0)
    monkeypatch.setattr(active_policies, "TTL_S", -1.0)
    submit(tenant, ECHO)
    with known_only():
        submit(tenant, ECHO)
    choosing.choose("order", "shortest_first")
    with known_only(), pytest.raises(AssertionError):
        submit(tenant, ECHO)


def test_a_kind_that_is_the_same_is_not_written_out_again(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(familiar, "KEPT_S", 0.0)
    monkeypatch.setattr(active_policies, "TTL_S", -1.0)
    submit(tenant, ECHO)

    def refuse(*_: Any) -> Any:
        raise AssertionError("it was written out")

    monkeypatch.setattr(familiar, "_split", refuse)
    before, again = (rows(submit(tenant, {**ECHO, "args": [n]}).task_ids[0]) for n in range(2))
    assert [{**row, **dict.fromkeys(OWN)} for row in before] == [{**row, **dict.fromkeys(OWN)} for row in again]
    assert (before[0]["args"], again[0]["args"]) == ([0], [1])
    choosing.choose("order", "shortest_first")
    submit(tenant, ECHO)
    limit(tenant, max_waiting=1)
    with pytest.raises(AssertionError):
        submit(tenant, ECHO)


def test_what_is_at_fault_is_told_as_of_the_first(tenant: Tenant) -> None:
    schema = {"properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    Handler.objects.filter(name=HANDLER).update(schema=schema)
    reference_cache.forget()
    data = {**ECHO, "kwargs": {"n": 1}}
    faulty: list[dict[str, Any]] = [
        {**ECHO, "kwargs": {"n": "one"}},
        {**ECHO, "kwargs": {}},
        {**ECHO, "kwargs": []},
        {**data, "args": [float("nan")]},
    ]
    told = []
    for known in (False, True):
        if known:
            submit(tenant, data)
        for each in faulty:
            with pytest.raises(InvalidInput) as raised:
                submit(tenant, each)
            told.append((known, type(raised.value), raised.value.field, str(raised.value)))
    assert [each[1:] for each in told[:4]] == [each[1:] for each in told[4:]]
    assert Task.objects.unscoped().count() == 1  # unscoped: of all tenants


def test_another_tenant_actor_or_type_is_another_kind(tenant: Tenant) -> None:
    other = client_of("strange").tenant
    submit(tenant, {**ECHO, "priority": 1}, actor="me")
    with pytest.raises(InvalidInput):
        submit(tenant, {**ECHO, "priority": True}, actor="me")
    ids = [submit(other, {**ECHO, "priority": 1}, actor="me").task_ids[0]]
    ids.append(submit(tenant, {**ECHO, "priority": 1}, actor="you").task_ids[0])
    found = [(wide["tenant_id"], wide["submitted_by"]) for wide, _ in map(rows, ids)]
    assert found == [(other.pk, "me"), (tenant.pk, "you")]


def test_a_repeated_key_still_gets_the_first_answer(tenant: Tenant) -> None:
    submit(tenant, ECHO)
    key = str(uuid4())
    ids = {submit(tenant, ECHO, idempotency_key=key).task_ids[0] for _ in range(2)}
    ids |= {submit(tenant, {**ECHO, "idempotency_key": f"{key}2"}).task_ids[0] for _ in range(2)}
    assert len(ids) == 2


def test_in_a_transaction_of_the_callers_it_is_stored_if_that_commits(tenant: Tenant, known_only: Any) -> None:
    submit(tenant, ECHO)
    told: list[str] = []
    with known_only(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("slackwater_tasks.ledger.hints.wake_dispatcher", told.append)
        with transaction.atomic():
            submit(tenant, ECHO)
            transaction.set_rollback(True)
        with transaction.atomic():
            submit(tenant, ECHO)
            assert told == []
    assert told == [tenant.cell]
    assert CurrentCounter.objects.get(tenant=tenant).unfinished == Task.objects.unscoped().count() == 2  # unscoped: all


def test_what_a_transaction_made_is_not_remembered(tenant: Tenant) -> None:
    with transaction.atomic():
        submit(tenant, ECHO)
    assert familiar.submit(tenant, ECHO, "") is None
    submit(tenant, ECHO)
    assert familiar.submit(tenant, ECHO, "") is not None
    reference_cache.forget_tiers(tenant.pk)
    assert familiar.submit(tenant, ECHO, "") is None
