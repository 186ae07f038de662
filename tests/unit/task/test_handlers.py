"""What ``@handler`` and ``export`` refuse of a handler, by the field that is wrong."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, assert_type

import pytest
from celery import Celery

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.types import WorkKind
from scheduler_ext.task import handlers


@pytest.fixture(autouse=True)
def _only_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is exported is so for the time of a test, and no task of every Celery app's."""
    monkeypatch.setattr(handlers, "_exports", {})
    monkeypatch.setattr("celery.shared_task", lambda **_: lambda function: function)


def plain() -> None:
    """Do nothing."""


async def waits() -> None:
    """Wait for nothing."""


async def streams() -> Any:
    """Hand over one value after the other."""
    yield 1


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"kind": "nope"}, "kind", "must be WorkKind.PROCESS, WorkKind.THREAD or WorkKind.COROUTINE, not 'nope'"),
    ({"kind": "thread"}, "kind", "not 'thread'"), ({"kind": WorkKind.SCRIPT}, "kind", "no script"),
    ({"kind": WorkKind.COROUTINE}, "kind", "an async def"),
    ({"name": ""}, "name", "1 to 200"), ({"name": "a b"}, "name", "without spaces"),
    ({"name": "a\x00"}, "name", "without spaces"),
    ({"name": "a" * 201}, "name", "1 to 200"), ({"name": 3}, "name", "1 to 200"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "field", "why"), WRONG)
def test_what_no_worker_could_run_is_refused_where_it_is_written(options: dict[str, Any], field: str, why: str) -> None:
    decorate: Any = handlers.handler
    app = Celery("refusing", set_as_current=False)
    task: Any = app.task(name="plain", shared=False)(plain)
    with pytest.raises(ConfigurationError) as refused:
        decorate(**{"name": "plain", **options})(plain)
    assert refused.value.field == field
    assert why in refused.value.message
    with pytest.raises(ConfigurationError) as refused:
        handlers.export(task, **options)
    assert refused.value.field == field
    assert not handlers.exported()


def test_coroutines_are_async_functions_and_generators() -> None:
    def wrapped(*args: Any) -> Any:
        return waits(*args)

    for function in (waits, streams, wraps(waits, assigned=())(wrapped)):
        handlers.handler(name=function.__name__, kind=WorkKind.COROUTINE)(function)
    assert {export.kind for export in handlers.exported().values()} == {WorkKind.COROUTINE}


def test_type_checkers_see_the_functions_signature() -> None:
    """What is said here mypy checks, with the whole tree."""

    @handlers.handler(name="typed.price", kind=WorkKind.THREAD)
    def price(order: int, *, currency: str = "EUR") -> str:
        return f"{order} {currency}"

    @handlers.handler(name="typed.bound", bind=True, max_retries=3)
    def bound(self: Any, order: int) -> float:
        return float(order)

    @handlers.handler(name="typed.open", bind=True)
    def takes_all(self: Any, /, **options: Any) -> int:
        return len(options)

    @handlers.handler(name="typed.waits")
    async def later(order: int) -> int:
        return order

    assert_type(price(1, currency="USD"), str)
    assert_type(later(1), Coroutine[Any, Any, int]).close()
    if TYPE_CHECKING:
        assert_type(bound(1), float)
        assert_type(takes_all(colour="red"), int)
        assert_type(price.name, str)
        assert_type(price.max_retries, Any)
        price.apply_async((1,), {"currency": "USD"}, countdown=3)
        price.s()
        bound.delay(1)
        bound.si(order=1)
        price.delay("1")  # type: ignore[arg-type]  # an order is a number
        bound.delay(1, 2)  # type: ignore[call-arg]  # itself is no argument
        price.si(price=1)  # type: ignore[call-arg]  # there is no such argument
    assert price(2) == "2 EUR"
