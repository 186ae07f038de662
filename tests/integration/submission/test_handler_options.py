"""What Celery's options of a function under ``@handler`` become: the same as those of a task that is exported."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, Task

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.states import Repeats
from scheduler_ext.core.types import WorkKind
from scheduler_ext.core.work import Export
from scheduler_ext.task import handlers
from slackwater_tasks.models import Task as Row
from slackwater_tasks.submission.service import submit
from slackwater_tenants.services import create_tenant
from tests.support.api import furnish

pytestmark = pytest.mark.filterwarnings(
    r"ignore:\s*The 'priority' task attribute:celery.exceptions.CDeprecationWarning"
)


@pytest.fixture(autouse=True)
def _only_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is exported is so for the time of a test, and no task of every Celery app's."""
    monkeypatch.setattr(handlers, "_exports", dict(handlers.exported()))
    monkeypatch.setattr("celery.shared_task", lambda **_: lambda function: function)


def nothing() -> None:
    """Do nothing."""


async def waits() -> None:
    """Wait for nothing."""


def made(name: str, **options: Any) -> Export:
    """The export of a function with these options."""
    handlers.handler(name=name, **options)(nothing)
    found = handlers.find(name)
    assert found is not None
    return found


@pytest.mark.django_db
def test_they_become_fields_of_its_tasks() -> None:
    furnish()
    acme = create_tenant("acme", "Acme")
    made("opt.capped", time_limit=1, priority=3)
    capped = submit(acme, {"handler": "opt.capped"})
    own = submit(acme, {"handler": "opt.capped", "execution_cap_s": 5, "priority": 1})
    rows = [Row._plain.get(pk=one.task_ids[0]) for one in (capped, own)]
    assert [(row.cap_ms, row.priority) for row in rows] == [(1_000, 6), (5_000, 1)], "the broker is a Redis"


def test_they_say_what_the_options_of_an_exported_task_say() -> None:
    class Base(Task):
        """A class that a team gives its tasks."""

        time_limit = 30
        rate_limit = "6/m"

    app = Celery("options", set_as_current=False, broker="redis://localhost")
    app.conf.update(task_time_limit=7)
    for options in ({"time_limit": 2, "rate_limit": "1/m"}, {"base": Base}, {"base": Base, "rate_limit": None}):
        given: Any = {"priority": 9, **options}
        task = app.task(name="opt.exported", shared=False, **given)(nothing)
        exported, own = handlers.of_task(handlers.export(task).name), made("opt.own", **given)
        assert exported is not None
        limits = {name: value for name, value in exported.defaults.items() if name != "total_attempts"}
        assert (own.defaults, own.rate) == (limits, exported.rate), options
        app.tasks.pop("opt.exported")
        handlers._exports.pop("opt.exported")


def test_its_own_words_keep_their_meaning() -> None:
    found = made("opt.retries", max_retries=1, acks_late=True, category="urgent")
    assert (found.defaults, found.repeats) == ({"category": "urgent"}, Repeats.ALWAYS)


@pytest.mark.parametrize(("options", "field"), [
    ({"max_retries": -1}, "max_retries"), ({"max_retries": 100}, "max_retries"), ({"rate_limit": "many"}, "rate_limit"),
    ({"time_limit": -1}, "time_limit"), ({"time_limit": 1, "soft_time_limit": 2}, "soft_time_limit"),
    ({"priority": 300}, "priority"), ({"Request": "my:Own"}, "Request"),
    ({"kind": WorkKind.THREAD, "soft_time_limit": 1}, "kind"),
])  # fmt: skip
def test_what_cannot_be_kept_is_refused_by_its_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigurationError, match=r"opt\.wrong") as refused:
        made("opt.wrong", **options)
    assert refused.value.field == field
    assert handlers.find("opt.wrong") is None, "nothing is exported that was refused"


def test_a_soft_time_limit_needs_a_process() -> None:
    with pytest.raises(ConfigurationError, match="needs a process of its own"):
        handlers.handler(name="opt.waits", soft_time_limit=1)(waits)
    with pytest.raises(ConfigurationError, match="needs a process of its own"):
        handlers.export(Celery("o", set_as_current=False).task(name="opt.soft", shared=False, soft_time_limit=1)(waits))
    assert handlers.find("opt.soft") is None
