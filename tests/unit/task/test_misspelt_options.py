"""A misspelt option of a task is refused; an attribute of a team's own is none."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, Task

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.task import celery_options, handlers
from slackwater.moving import doctor
from slackwater.moving.findings import Verdict


class Base(Task):
    """A class that a team gives its tasks, with attributes of its own."""

    autoregister = True
    rate_limits: dict[str, str] = {}


def nothing() -> None:
    """Do nothing."""


def made(**options: Any) -> Any:
    app = Celery("misspelt", set_as_current=False)
    app.conf.task_annotations = {"*": {"audited": True}}
    return app.task(name="mis.spelt", shared=False, **options)(nothing)


@pytest.fixture(autouse=True)
def _only_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is exported is so for the time of a test, and no task of every Celery app's."""
    monkeypatch.setattr(handlers, "_exports", {})
    monkeypatch.setattr("celery.shared_task", lambda **_: lambda function: function)


@pytest.mark.parametrize(("given", "meant"), [
    ("max_retry", "max_retries"), ("acks_lat", "acks_late"), ("timelimit", "time_limit"), ("auto_retry_for", "autoretry_for"),
    ("rate_limits", "rate_limit"), ("expire", "expires"),
])  # fmt: skip
def test_a_misspelt_option_is_refused_with_what_was_meant(given: str, meant: str) -> None:
    wrong: dict[str, Any] = {given: 5}
    for refuse in (
        lambda: handlers.export(made(**wrong)),
        lambda: handlers.handler(name="mis.spelt", **wrong)(nothing),
    ):
        with pytest.raises(ConfigurationError, match=rf"mis\.spelt .*did you mean {meant}\?") as refused:
            refuse()
        assert refused.value.field == given
    assert not handlers.exported()
    (finding,) = doctor._task(made(**wrong))
    assert (finding.verdict, finding.option) == (Verdict.REFUSED, given)


def test_attributes_of_ones_own_stay() -> None:
    own: dict[str, Any] = {"foo": 1, "autoregister": False, "base": Base, "rate_limits": {"a": "1/m"}, "max_retries": 5}
    handlers.export(made(**own))
    handlers.handler(name="mis.own", **own)(nothing)
    assert set(handlers.exported()) == {"mis.spelt", "mis.own"}
    found = {finding.option: (finding.verdict, finding.why) for finding in doctor._task(made(**own))}
    assert found["foo"] == (Verdict.CARRIES, "an attribute of your own: Celery has no such option")
    assert set(found) == {"foo", "audited", "max_retries"}, "what the base class has is meant"


def test_no_option_that_celery_knows_is_taken_for_another() -> None:
    known = [name for name in dir(Task) if not name.startswith("_") and name != "from_config"]
    names = [*known, *dict(Task.from_config), *(option.name for option in celery_options.OPTIONS), "lazy"]
    kind = type("Task", (Task,), {"_decorated": True, **dict.fromkeys(names)})
    of_calls = {option.name for option in celery_options.OPTIONS if option.given == celery_options.CALLED}
    assert celery_options.own_attributes(kind) == dict.fromkeys(of_calls - set(known), "")
