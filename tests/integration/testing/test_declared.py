"""Tasks that ``DURABLE`` names, in a team's tests: a test's process has them as a worker would."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import chord, shared_task

from scheduler_ext.core.errors import ConfigurationError, InvalidInput
from scheduler_ext.core.states import Outcome
from scheduler_ext.task import handlers
from slackwater import submit
from slackwater.celery import app
from slackwater.testing import inbox as worker
from slackwater.testing.inbox import Inbox
from slackwater.testing.plugin import slackwater_eager, slackwater_inbox
from slackwater_tasks.models import Task

__all__ = ["slackwater_eager", "slackwater_inbox"]


@shared_task(name="late.mail", max_retries=1, acks_late=True)
def mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


@shared_task(name="late.add")
def add(x: int, y: int) -> int:
    """The sum."""
    return x + y


@shared_task(name="late.total")
def total(values: list[int]) -> int:
    """The sum of a list."""
    return sum(values)


@shared_task(name="late.becomes", bind=True)
def becomes(self: Any) -> None:
    """Go on as another task."""
    self.replace(mail.s("eve"))


@shared_task(name="late.never", max_retries=500)
def never() -> None:
    """What no worker would start with."""


@pytest.fixture(autouse=True)
def _declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The project's setting; nothing of it is exported yet. What is imported meanwhile stays exported."""
    monkeypatch.setattr(handlers, "_patterns", ["late.*"])
    yield
    for name in [name for name in handlers.exported() if name.startswith("late.")]:
        del handlers._exports[name]


def test_a_task_runs_that_is_submitted_by_its_name(slackwater_inbox: Inbox) -> None:
    submit(slackwater_inbox.tenant, {"handler": "late.mail", "args": ["ada"]})
    with pytest.raises(InvalidInput, match="to"):
        submit(slackwater_inbox.tenant, {"handler": "late.mail", "kwargs": {"towards": "ada"}})
    assert [run.outcome for run in slackwater_inbox.run_until_idle()] == [Outcome.SUCCEEDED]
    (task,) = slackwater_inbox.of("late.mail")
    assert task.result == "sent to ada"
    assert Task.objects.unscoped().get(pk=task.id).total_attempts == 2, "what the task declares holds"


def test_every_step_of_a_canvas_runs(slackwater_eager: Inbox) -> None:
    found: Any = chord([add.s(1, 1), add.s(2, 2)])(total.s())
    assert found.get() == 6


def test_a_task_goes_on_as_one_that_nobody_asked_for(slackwater_inbox: Inbox) -> None:
    submit(slackwater_inbox.tenant, {"handler": "late.becomes"})
    slackwater_inbox.run_until_idle()
    assert slackwater_inbox.of("late.becomes")[0].result == "sent to eve"


def test_an_accident_can_befall_it_before_it_is_submitted(slackwater_inbox: Inbox) -> None:
    slackwater_inbox.die_after_commit("late.mail")
    submit(slackwater_inbox.tenant, {"handler": "late.mail", "args": ["ada"]})
    assert [run.outcome.name for run in slackwater_inbox.run_until_idle()] == ["WORKER_LOST", "SUCCEEDED"]
    with pytest.raises(LookupError):
        slackwater_inbox.die_after_commit("late.nobody")


def test_a_task_of_the_test_itself_runs(slackwater_inbox: Inbox) -> None:
    @shared_task(name="late.local")
    def local() -> str:
        return "here"

    submit(slackwater_inbox.tenant, {"handler": "late.local"})
    slackwater_inbox.run_until_idle()
    assert slackwater_inbox.of("late.local")[0].result == "here"


def test_a_module_that_a_worker_imports_is_imported(
    slackwater_inbox: Inbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = (
        "from celery import shared_task\n\n@shared_task(name='late.elsewhere')\ndef elsewhere():\n    return 'found'\n"
    )
    (tmp_path / "late_elsewhere.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(app.conf, "imports", ("late_elsewhere",))
    monkeypatch.delitem(vars(app.loader), "default_modules", raising=False)
    worker._load.cache_clear()
    try:
        submit(slackwater_inbox.tenant, {"handler": "late.elsewhere"})
        slackwater_inbox.run_until_idle()
        assert slackwater_inbox.of("late.elsewhere")[0].result == "found"
    finally:  # nobody else is to look for it
        sys.modules.pop("late_elsewhere", None)
        app.tasks.pop("late.elsewhere", None)
        vars(app.loader).pop("default_modules", None)
        worker._load.cache_clear()


def test_what_would_end_a_workers_start_is_told(slackwater_inbox: Inbox) -> None:
    with pytest.raises(ConfigurationError, match=r"late\.never cannot be carried over: max_retries"):
        submit(slackwater_inbox.tenant, {"handler": "late.never"})
