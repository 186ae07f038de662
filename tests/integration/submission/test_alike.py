"""Tasks of one call that are alike are read by columns: what is stored, counted and refused is as on the ordinary way."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from scheduler_ext.core.errors import IdempotencyMismatch, InvalidInput, NotGranted, QuotaExceeded
from slackwater_resources.models import Handler
from slackwater_tasks.ledger import reference_cache, transitions
from slackwater_tasks.models import LiveTask, Task
from slackwater_tasks.models.base import new_id, new_ids
from slackwater_tasks.submission import admission, alike, service, store
from slackwater_tasks.submission.service import submit_many
from slackwater_tenants.models import CurrentCounter, Tenant
from tests.support.api import HANDLER, client_of, furnish

pytestmark = pytest.mark.django_db(transaction=True)
ECHO = {"handler": HANDLER}
AT = datetime(2026, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
MANY = store.AT_ONCE + 44
"""More than one statement writes."""
OWN = {"id", "task_id", "task"}


def nested(deep: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(deep - 1):
        found = [found]
    return found


Make = Callable[[int], dict[str, Any]]
KINDS: dict[str, Make] = {
    "nothing given": lambda n: {},
    "args": lambda n: {"args": [n, "two", None, True, 1.5, 10**20]},
    "args of any length": lambda n: {"args": [0] * (n % 5)},
    "a tuple": lambda n: {"args": (n, (n,))},
    "kwargs": lambda n: {"kwargs": {"n": n, "deep": [{"a": [n]}]}},
    "texts": lambda n: {"args": [f"\\{n}\t\r\n\"'%s%%{{}}", "é☃😀", "\\u0000 spelt", "\x7f"], "kwargs": {"k\\": "\\N"}},
    "a name that is no text": lambda n: {"kwargs": {n: n}},
    "beyond JSON": lambda n: {"args": [uuid.UUID(int=n), Decimal(n)]},
    "deep": lambda n: {"args": [[[[]]] * 30]},
    "as deep as may be": lambda n: {"args": nested(64) if n == 7 else [n]},
    "kinds": lambda n: {"args": [n], "priority": n % 3, "category": ("urgent", "offpeak")[n % 2]},
    "two kinds": lambda n: {"args": [n], "priority": n % 2, "kwargs": {"n": f"\\{n}"}},
    "all that stands in a row": lambda n: {
        "args": [n], "tier": "regular", "delay_tolerance_s": 1.5, "execution_cap_s": 9, "on_late": "give_up",
        "total_attempts": 1, "mutex_key": "k%s", "mutex_limit": 3, "rate_key": "r", "start_in_s": 60, "expires_in_s": 90,
    },
    "some have keyword arguments": lambda n: {"args": [n], **({"kwargs": {"n": n}} if n % 2 else {})},
    "the same arrays beside them": lambda n: {
        "args": [n], "tags": ["a", "b"], "metadata": {"n": "1"}, "retry": {"base_s": 1}, "require_labels": ["x"],
    },
    "the same needs": lambda n: {"args": [n], "resources": {"memory_mb": 300}},
    "arrays that look the same": lambda n: {"args": [n], "resources": {"memory_mb": 300.0 if n % 2 else 300}},
    "arrays beside them": lambda n: {"args": [n], "tags": ["a", f"t{n % 2}"], "metadata": {"n": "1"}},
    "names": lambda n: {"args": [n], "name": f"n{n}"},
    "one needs another": lambda n: {"name": f"n{n}", "depends_on": [f"n{n - 1}"] if n == 5 else []},
    "a parent's result": lambda n: {
        "name": f"n{n}", **({"depends_on": ["n0"], "args": [{"$from": "n0"}]} if n == 3 else {})
    },
}  # fmt: skip
ORDINARY = {
    "arrays that look the same",
    "some have keyword arguments", "arrays beside them", "names", "one needs another", "a parent's result"
}  # fmt: skip
Ways = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def tenant(monkeypatch: pytest.MonkeyPatch) -> Tenant:
    monkeypatch.setattr(reference_cache, "now", lambda: AT)
    furnish()
    return client_of("alike").tenant


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Ways:
    """A context in which only one of the two ways is open."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("it went the other way")

    @contextmanager
    def held(*, ordinary: bool) -> Iterator[None]:
        with monkeypatch.context() as patch:
            if ordinary:
                patch.setattr(alike, "submit", lambda *_, **__: None)
            else:
                patch.setattr(service, "parse_tasks", refuse)
            yield

    return held


def stored(ids: Sequence[uuid.UUID]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The two rows of each task, without its id."""
    wide = {row["id"]: row for row in Task.objects.unscoped().filter(pk__in=ids).values()}  # unscoped: named by id
    thin = {
        row["task_id"]: row for row in LiveTask.objects.unscoped().filter(pk__in=ids).values()
    }  # unscoped: as above
    assert len(wide) == len(thin) == len(ids)
    return [
        ({k: v for k, v in wide[i].items() if k not in OWN}, {k: v for k, v in thin[i].items() if k not in OWN})
        for i in ids
    ]


def counters(tenant: Tenant) -> tuple[int, int, int]:
    found = CurrentCounter.objects.get(tenant=tenant)
    return found.unfinished, found.urgent_unfinished, found.submitted


@pytest.mark.parametrize("count", [1, 9, MANY])
@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_are_those_of_the_ordinary_way(tenant: Tenant, way: Ways, kind: str, count: int) -> None:
    if kind in ("one needs another", "a parent's result") and count == 1:
        pytest.skip("it has nobody to need")
    items = [{**ECHO, **KINDS[kind](n)} for n in range(count)]
    with way(ordinary=True):
        first = submit_many(tenant, items, actor="me").task_ids
    before = counters(tenant)
    lone = {"some have keyword arguments", "arrays beside them", "arrays that look the same"}
    goes_by_columns = kind not in ORDINARY or (count == 1 and kind in lone)
    if goes_by_columns:
        with way(ordinary=False):
            second = submit_many(tenant, items, actor="me").task_ids
    else:
        second = submit_many(tenant, items, actor="me").task_ids
    assert stored(second) == stored(first)
    assert counters(tenant) == (2 * before[0], 2 * before[1], 2 * before[2])
    assert before[0] == count
    assert [row.args for row in Task.objects.unscoped().filter(pk__in=second).order_by("pk")] == [  # unscoped: by id
        wide["args"] for wide, _ in stored(first)
    ]


@pytest.mark.parametrize("kind", ["texts", "two kinds"])
def test_what_is_too_much_for_a_statement_is_copied(
    tenant: Tenant, way: Ways, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    items = [{**ECHO, **KINDS[kind](n)} for n in range(MANY)]
    by_statement = stored(submit_many(tenant, items).task_ids)
    monkeypatch.setattr(alike, "MAX_TEXT", 10)
    monkeypatch.setattr(transitions, "store_herd", None)
    assert stored(submit_many(tenant, items).task_ids) == by_statement


def test_an_array_that_is_made_late_is_read_block_by_block(
    tenant: Tenant, way: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alike, "BLOCK", 100)

    class Late(Sequence[Any]):
        def __len__(self) -> int:
            return MANY

        def __getitem__(self, n: Any) -> Any:
            if n >= MANY:
                raise IndexError
            return {**ECHO, "args": [n], "priority": n // 150, "category": "urgent" if n >= 200 else "offpeak"}

    make = reference_cache.line_id
    made: list[bool] = []

    def line_id(*args: Any) -> int:
        made.append(connection.in_atomic_block)
        return make(*args)

    monkeypatch.setattr(reference_cache, "line_id", line_id)
    with way(ordinary=False):
        ids = submit_many(tenant, Late()).task_ids
    assert made
    assert not any(made), "a line is made outside of the transaction"
    rows = stored(ids)
    assert [wide["args"] for wide, _ in rows] == [[n] for n in range(MANY)]
    assert [thin["priority"] for _, thin in rows] == [n // 150 for n in range(MANY)]
    assert len({thin["line_id"] for _, thin in rows}) == 2
    assert counters(tenant) == (MANY, MANY - 200, MANY)


@pytest.mark.parametrize(("count", "admitted"), [(alike.MOST_KINDS, alike.MOST_KINDS), (alike.MOST_KINDS + 1, 1)])
def test_tasks_of_many_kinds_are_admitted_together(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, count: int, admitted: int
) -> None:
    calls = []
    admit = admission.admit

    def noted(*args: Any, **given: Any) -> Any:
        calls.append(args)
        return admit(*args, **given)

    monkeypatch.setattr(admission, "admit", noted)
    rows = stored(submit_many(tenant, [{**ECHO, "mutex_key": f"k{n % count}"} for n in range(MANY)]).task_ids)
    assert [wide["mutex_key"] for wide, _ in rows] == [f"k{n % count}" for n in range(MANY)]
    assert len(calls) == admitted


def flawed(n: int, fields: dict[Any, Any]) -> list[Any]:
    """A call of which the last and the one at this place are wrong."""
    items: list[Any] = [{**ECHO, "args": [k]} for k in range(MANY)]
    for place in (n, -1):
        items[place] = {**items[place], **fields}
    return items


def ring_of_its_own() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


RING = ring_of_its_own()


class Unspeakable:
    """Neither compares nor says what it is, as arrays of numbers do."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("of which element?")

    def __repr__(self) -> str:
        raise ValueError("which element?")


FAULTS: list[dict[Any, Any]] = [
    {"args": [float("nan")]},
    {"args": ["\x00"]},
    {"args": ["\ud800"]},
    {"args": "text"},
    {"args": [object]},
    {"args": RING},
    {"args": nested(65)},
    {"args": ["x" * 100_001]},
    {"args": [{"$from": "nobody"}]},
    {"args": ["no number"]},
    {"args": [1, 2]},
    {"args": [True]},
    {"kwargs": {"m": 1}},
    {"handler": ""},
    {"handler": "no.such"},
    {"category": "urgentest"},
    {"priority": True},
    {"priority": 1.5},
    {"execution_cap_s": 10**9},
    {"idempotency_key": "inner"},
    {"nonsense": 1},
    {5: 1},
]


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: ascii(fault)[:40])
def test_what_is_wrong_is_told_as_on_the_ordinary_way(
    tenant: Tenant, way: Ways, fault: dict[Any, Any], place: int
) -> None:
    schema = {"x-positional": ["n"], "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    Handler.objects.filter(name=HANDLER).update(schema=schema)
    tenant.plan.max_payload_bytes = 100_000
    tenant.plan.save()
    reference_cache.forget()
    told = []
    for ordinary in (True, False):
        items = flawed(place, fault)
        with way(ordinary=True) if ordinary else nullcontext(), pytest.raises(InvalidInput) as raised:
            submit_many(tenant, items)
        error = raised.value
        told.append((type(error), str(error), error.told()))
    assert told[0] == told[1]
    assert "tasks[" in str(told[0])
    assert not Task.objects.unscoped().exists()  # unscoped: of nobody
    assert counters(tenant) == (0, 0, 0)
    assert len(submit_many(tenant, [{**ECHO, "args": [n]} for n in range(MANY)]).task_ids) == MANY


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "make",
    [Unspeakable, lambda: 10**5_000, lambda: [10**5_000], lambda: nested(20_000), ring_of_its_own],
    ids=["unspeakable", "a long number", "it in an array", "deep", "a ring"],
)
@pytest.mark.parametrize("field", ["priority", "tags", "nonsense"])
def test_what_can_be_neither_compared_nor_written_is_told(
    tenant: Tenant, way: Ways, field: str, make: Callable[[], Any], count: int
) -> None:
    told = []
    for ordinary in (True, False):
        items = [{**ECHO, field: make()} for _ in range(count)]
        with way(ordinary=True) if ordinary else nullcontext(), pytest.raises(InvalidInput) as raised:
            submit_many(tenant, items)
        told.append((str(raised.value), raised.value.told()))
    assert told[0] == told[1]
    assert told[0][0].startswith(f"tasks[0].{field}")


@pytest.mark.parametrize("place", [0, MANY - 1])
@pytest.mark.parametrize(
    ("field", "granted", "beyond"),
    [
        ("tier", "basic", "premium"), ("category", "offpeak", "urgent"), ("execution_cap_s", 9, 99),
        ("handler", HANDLER, "other.one"),
    ],
)  # fmt: skip
def test_what_the_plan_does_not_grant_is_told_with_its_place(
    tenant: Tenant, way: Ways, field: str, granted: Any, beyond: Any, place: int
) -> None:
    Handler.objects.get_or_create(name="other.one")
    plan = tenant.plan
    plan.tiers, plan.max_urgent_permille, plan.max_cap_s, plan.handlers = ["basic"], 0, 60, ["demo.*"]
    plan.save()
    items = [{**ECHO, field: beyond if n >= place else granted} for n in range(MANY)]
    told = []
    for ordinary in (True, False):
        with way(ordinary=True) if ordinary else nullcontext(), pytest.raises(NotGranted) as raised:
            submit_many(tenant, items)
        told.append((str(raised.value), raised.value.told()))
    assert told[0] == told[1]
    assert told[0][0].startswith(f"tasks[{place}].{field}")


def test_a_kind_admitted_a_moment_ago_is_not_admitted_again(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    Handler.objects.filter(name=HANDLER).update(schema={"properties": {"n": {"type": "integer"}}})
    reference_cache.forget()
    with transaction.atomic():
        submit_many(tenant, [{**ECHO, "kwargs": {"n": 0}}] * 2)  # what it made may be rolled back
    admitted: list[Any] = []
    admit = admission.admit

    def noted(*given: Any, **how: Any) -> Any:
        admitted.append(given)
        return admit(*given, **how)

    monkeypatch.setattr(admission, "admit", noted)
    ids = [submit_many(tenant, [{**ECHO, "kwargs": {"n": n}}] * 2).task_ids for n in range(3)]
    assert len(admitted) == 1
    (first, *_), (second, *_) = stored(ids[0]), stored(ids[2])
    assert {**first[0], "kwargs": {}} == {**second[0], "kwargs": {}}
    assert first[1] == second[1]
    submit_many(tenant, [{**ECHO, "priority": 1}] * 2)
    with pytest.raises(InvalidInput, match="priority"):
        submit_many(tenant, [{**ECHO, "priority": True}] * 2)  # equal to one
    with pytest.raises(InvalidInput, match=r"kwargs\.n"):
        submit_many(tenant, [{**ECHO, "kwargs": {"n": "one"}}] * 2)
    tenant.plan.handlers = ["other.*"]
    with pytest.raises(NotGranted):
        submit_many(tenant, [{**ECHO, "kwargs": {"n": 1}}] * 2)


def test_a_dictionary_that_makes_what_it_is_asked_for_is_checked_as_it_is(tenant: Tenant) -> None:
    Handler.objects.filter(name=HANDLER).update(schema={"properties": {"n": {}}, "additionalProperties": False})
    reference_cache.forget()
    items = [{**ECHO, "kwargs": defaultdict(int, {name: 1})} for name in ("n", "m")]
    with pytest.raises(InvalidInput, match=r"tasks\[1\].kwargs.m: the handler has no such argument"):
        submit_many(tenant, items)
    assert items[1]["kwargs"] == {"m": 1}


def test_texts_that_are_written_alike_are_not_taken_for_the_same(tenant: Tenant) -> None:
    class Secret(str):
        __slots__ = ()

        def __repr__(self) -> str:
            return "a secret"

    items = [{**ECHO, "mutex_key": Secret("first" if n < alike.FIRST else "then")} for n in range(MANY)]
    rows = stored(submit_many(tenant, items).task_ids)
    assert [wide["mutex_key"] for wide, _ in rows] == [item["mutex_key"] for item in items]


def test_the_limits_are_met_exactly(tenant: Tenant, way: Ways) -> None:
    tenant.plan.max_waiting = MANY + 1
    tenant.plan.save()
    items = [{**ECHO, "args": [n]} for n in range(MANY)]
    with way(ordinary=False):
        submit_many(tenant, items)
        with pytest.raises(QuotaExceeded):
            submit_many(tenant, items)
        submit_many(tenant, items[:1])
        with pytest.raises(QuotaExceeded):
            submit_many(tenant, items[:1])
    assert counters(tenant)[0] == Task.objects.unscoped().count() == MANY + 1  # unscoped: of one tenant


@pytest.mark.parametrize("count", [2, MANY])
def test_an_idempotency_key_gives_the_first_answer(tenant: Tenant, way: Ways, count: int) -> None:
    items = [{**ECHO, "args": [n]} for n in range(count)]
    with way(ordinary=False):
        first = submit_many(tenant, items, idempotency_key="once")
        again = submit_many(tenant, items, idempotency_key="once")
        with pytest.raises(IdempotencyMismatch):
            submit_many(tenant, [*items, ECHO | {"args": [0]}], idempotency_key="once")
    assert (first.created, again.created) == (True, False)
    assert again.task_ids == first.task_ids
    assert counters(tenant) == (count, 0, count)


@pytest.mark.parametrize("count", [2, MANY])
def test_what_a_rolled_back_transaction_submitted_is_gone(tenant: Tenant, way: Ways, count: int) -> None:
    with way(ordinary=False), transaction.atomic():
        submit_many(tenant, [{**ECHO, "args": [n]} for n in range(count)])
        assert Task.objects.unscoped().count() == count  # unscoped: of one tenant
        transaction.set_rollback(True)
    assert not Task.objects.unscoped().exists()  # unscoped: of nobody
    assert counters(tenant) == (0, 0, 0)


BROKEN = """
CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room for it'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON slackwater_tasks_livetask FOR EACH ROW WHEN (NEW.priority = 1)
EXECUTE FUNCTION pg_temp.refuse()
"""


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a transaction"])
@pytest.mark.parametrize("place", [0, 251])
def test_a_fault_of_the_server_is_told_and_leaves_the_connection_as_it_was(
    tenant: Tenant, way: Ways, place: int, inside: bool
) -> None:
    items = [{**ECHO, "args": [n], "priority": int(n == place)} for n in range(MANY)]
    with connection.cursor() as cur:
        cur.execute(BROKEN)
    try:
        with way(ordinary=False), transaction.atomic() if inside else nullcontext():
            with pytest.raises(DatabaseError, match="no room for it"):
                submit_many(tenant, items)
            ids = submit_many(tenant, [{**item, "priority": 2} for item in items]).task_ids
    finally:
        with connection.cursor() as cur:
            cur.execute("DROP TRIGGER refuse ON slackwater_tasks_livetask")
    assert len(stored(ids)) == Task.objects.unscoped().count() == MANY  # unscoped: of one tenant
    assert counters(tenant) == (MANY, 0, MANY)


def test_ids_made_together_are_ids_like_others_and_in_order() -> None:
    before, ids, after = new_id(), new_ids(3_000), new_id()
    assert [before, *ids, after] == sorted({before, *ids, after})
    assert {(each.version, each.variant, each.is_safe) for each in ids} == {
        (after.version, after.variant, after.is_safe)
    }
    assert [uuid.UUID(str(each)) for each in ids] == ids
