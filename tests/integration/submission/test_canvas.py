"""A Celery canvas as a stored workflow: the same graph, the same arguments."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, Task, chain, chord, group

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.states import RunCondition
from scheduler_ext.core.work import Started
from scheduler_ext.task import references
from scheduler_ext.task.celery_json import CALL, ERRBACK
from slackwater_resources.models import Handler
from slackwater_tasks.models import Dependency, MapNode, Workflow
from slackwater_tasks.models import Task as Row
from slackwater_tasks.submission.canvas import submit_canvas
from slackwater_tasks.submission.service import submit, submit_workflow
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import HANDLER, furnish

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Tenant:
    """A tenant that may run t.f."""
    furnish()
    Handler.objects.get_or_create(name="t.f")
    return create_tenant("acme", "Acme")


@pytest.fixture
def f() -> Task:
    """A Celery task."""
    app = Celery("canvas", set_as_current=False)

    @app.task(name="t.f", shared=False)
    def f(*args: Any) -> Any:
        return args

    return f


def stored() -> dict[str, tuple[list[Any], set[str]]]:
    """What was stored: arguments and parents by name, numbers only."""
    names = dict(Row._plain.values_list("pk", "name"))
    parents: dict[str, set[str]] = {name: set() for name in names.values()}
    for parent, child in Dependency.objects.values_list("parent_id", "child_id"):
        parents[names[child]].add(names[parent].split(":")[0])
    rows = Row._plain.order_by("pk").values_list("name", "args")
    return {name.split(":")[0]: (args, parents[name]) for name, args in rows}


def reference(*numbers: int) -> dict[str, Any]:
    """The argument that stands for these tasks' results."""
    return {"$from": [f"{n}:t.f" for n in numbers] if len(numbers) > 1 else f"{numbers[0]}:t.f"}


def test_a_chain_hands_each_result_on(acme: Tenant, f: Task) -> None:
    found = submit_canvas(acme, chain(f.s(1), f.s(2), f.si(3), f.s()), name="chain")
    assert stored() == {
        "0": ([1], set()),
        "1": ([reference(0), 2], {"0"}),
        "2": ([3], {"1"}),
        "3": ([reference(2)], {"2"}),
    }
    assert found.result_ids == [found.task_ids[3]]
    assert Workflow._plain.get().name == "chain"


def test_a_chord_collects_its_header(acme: Tenant, f: Task) -> None:
    canvas = chain(f.s(0), chord(group(f.s(1), chain(f.s(2), f.s(3))), f.s("body")), f.s("end"))
    found = submit_canvas(acme, canvas)
    assert stored() == {
        "0": ([0], set()),
        "1": ([reference(0), 1], {"0"}),
        "2": ([reference(0), 2], {"0"}),
        "3": ([reference(2), 3], {"2"}),
        "4": ([reference(1, 3), "body"], {"1", "3"}),
        "5": ([reference(4), "end"], {"4"}),
    }
    assert found.result_ids == [found.task_ids[5]]


def test_a_group_has_a_result_for_each_member(acme: Tenant, f: Task) -> None:
    found = submit_canvas(acme, group(f.s(1), f.s(2), f.s(3)))
    assert found.result_ids == found.task_ids
    assert not Dependency.objects.exists()


def test_a_group_after_a_group_gets_the_whole_list(acme: Tenant, f: Task) -> None:
    submit_canvas(acme, chain(group(f.s(1), f.s(2)), group(f.s("a"), f.s("b"))))
    assert stored()["2"] == ([reference(0, 1), "a"], {"0", "1"})
    assert stored()["3"] == ([reference(0, 1), "b"], {"0", "1"})


def test_a_signature_maps_over_the_one_before_it(acme: Tenant, f: Task) -> None:
    each: Any = f.s("each")
    submit_canvas(acme, chain(f.s(1), each.set(slackwater={"map": {"path": "files"}}), f.s("last")))
    assert stored() == {"0": ([1], set()), "1": (["each"], {"0"}), "2": ([reference(1), "last"], {"1"})}
    assert MapNode._plain.get().given == {"over": "0:t.f", "path": "files"}


def test_options_and_callbacks_are_kept(acme: Tenant, f: Task) -> None:
    signature: Any = f.s(1)
    signature.set(countdown=60, time_limit=7, slackwater={"category": "urgent", "priority": 5})
    signature.link(f.s("done"))
    signature.link_error(f.si("failed"))
    submit_canvas(acme, signature)
    first, done, failed = Row._plain.order_by("pk")
    assert (first.cap_ms, first.priority, first.start_at is not None) == (7_000, 5, True)
    assert done.args == [reference(0), "done"]
    assert (failed.args, failed.condition) == (["failed"], RunCondition.ANY_FAILED)


def test_a_step_keeps_when_it_expires_and_who_is_told_why_it_failed(acme: Tenant, f: Task) -> None:
    step: Any = f.s(2)
    submit_canvas(acme, chain(f.s(1), step.set(expires=60).on_error(f.s("failed"))))
    first, second, failed = Row._plain.order_by("pk")
    assert (first.expires_at, second.expires_at is not None) == (None, True)
    assert (failed.args, failed.condition, ERRBACK in failed.kwargs[CALL]) == (
        ["failed"],
        RunCondition.ANY_FAILED,
        True,
    )


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda f: chain(f.s(1), f.s(2).set(colour="red")), "canvas.tasks[1].options.colour"),
        (lambda f: chain(f.s(1), group(f.s(2), f.s(3)).set(priority=3)), "canvas.tasks[1].options.priority"),
        (lambda f: group(chain(f.s(1), f.s(2)).set(expires=9)), "canvas.tasks[0].options.expires"),
        (lambda f: group(chord([f.s(1)], f.s()).set(countdown=9), f.s(2)), "canvas.tasks[0].options.countdown"),
        (lambda f: group(chord([f.s(1)], f.s(), args=(3,)), f.s()), "canvas.tasks[0].args"),
        (lambda f: group([]), "canvas"),
        (lambda f: f.s().on_error(chain(f.s(), f.s())), "canvas.link_error[0]"),
        (lambda f: f.s().set(slackwater={"args": [1]}), "canvas.options.slackwater"),
        (lambda f: f.s().set(slackwater={"map": {}}), "canvas.options.slackwater.map"),
        (lambda f: f.chunks([(1,)], 1), "canvas"),
        (lambda f: f.chunks([(1,)], 1).group(), "canvas.tasks[0]"),
    ],
)
def test_what_cannot_be_kept_is_refused(acme: Tenant, f: Task, make: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        submit_canvas(acme, make(f))
    assert caught.value.field == field
    assert not Row._plain.exists()


# -- references in any workflow ----------------------------------------------------------------------------------------
def started(args: list[Any], kwargs: dict[str, Any]) -> Started:
    """A task that begins."""
    return Started("id", 1, 1, "h", "", "", args, kwargs, 1000, 1, "n")


def test_references_are_filled_in_when_the_task_starts() -> None:
    results = {"a": {"rows": [{"id": 7}]}, "b": None}
    task = started([{"$from": "a", "path": "rows.0.id"}, {"x": {"$from": "a"}}], {"all": {"$from": ["a", ["b"]]}})
    found = references.filled(task, lambda _: results)
    assert found.args == [7, {"x": {"$from": "a"}}], "deeper it is data like any other"
    assert found.kwargs == {"all": [results["a"], [None]]}
    with pytest.raises(InvalidInput, match="has no 'nothing'"):
        references.filled(started([{"$from": "a", "path": "nothing"}], {}), lambda _: results)


def test_a_task_without_references_asks_for_nothing() -> None:
    task = started([1, {"a": 1}], {"b": []})
    assert references.filled(task, lambda _: pytest.fail("it asked")) is task


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"$from": "nobody"}, "not among its depends_on"),
        ({"$from": "a", "default": 1}, "fields"),
        ({"$from": []}, "must be the name"),
        ({"$from": "a", "path": 3}, "must be a string"),
    ],
)
def test_a_wrong_reference_is_refused_with_its_place(acme: Tenant, argument: Any, message: str) -> None:
    tasks = [
        {"name": "a", "handler": HANDLER},
        {"name": "b", "handler": HANDLER, "depends_on": ["a"], "kwargs": {"x": argument}},
    ]
    with pytest.raises(InvalidInput, match=message) as caught:
        submit_workflow(acme, {"tasks": tasks})
    assert str(caught.value.field).startswith("tasks[1].kwargs.x")
    with pytest.raises(InvalidInput):
        submit(acme, {"handler": HANDLER, "args": [argument]})
