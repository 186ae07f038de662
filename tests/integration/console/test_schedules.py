"""Schedules in the console: made and changed in fields by kind, with the arguments that a handler or template has."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from slackwater_resources.models import Handler
from slackwater_schedules.models import Schedule
from slackwater_schedules.words import work_words
from slackwater_tasks.submission import templates
from slackwater_tenants.models import Tenant
from tests.support.api import HANDLER
from tests.support.console import browser_of, told
from tests.support.schedules import make

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]
HERE = "/console/acme/schedules"
SCHEMA = {
    "type": "object", "required": ["to"], "additionalProperties": False, "x-positional": ["to", "copies"],
    "properties": {
        "to": {"type": "string"}, "copies": {"type": "integer", "minimum": 1}, "draft": {"type": "boolean"},
        "text": {"type": "string"},
    },
}  # fmt: skip


def sent(page: Client, at: str, **changed: Any) -> dict[str, Any]:
    """What the form there would send, with something changed; ``None`` unticks."""
    fields = page.get(at).context["form"]["fields"]
    data = {
        field.name: "on" if field.kind == "flag" else field.value
        for field in fields
        if field.value is not False and field.value not in ("", [])
    }
    hidden = page.get(at).context["form"]["hidden"]
    return {name: value for name, value in {**hidden, **data, **changed}.items() if value is not None}


def stored() -> Schedule:
    return Schedule.objects.unscoped().get()


def test_one_is_made_by_words_and_changed(tenant: Tenant) -> None:
    Handler.objects.create(name="mail.send", schema=SCHEMA)
    page = browser_of(tenant, "operator", "ann")
    choices = told(page.get(f"{HERE}/new/"))
    assert f'href="{HERE}/new/?handler=mail.send"' in choices
    at = f"{HERE}/new/?handler=mail.send"
    form = sent(page, at, **{
        "name": "greeting", "kind": "weekly", "weekdays": ["mon", "fri"], "times": "07:30, 18:00", "every_s": "10 min",
        "time_zone": "Europe/Berlin", "arg.to": "ann@example.org", "arg.copies": "2", "arg.draft": "on",
        "task.tier": "basic", "task.tags": "eu, nightly", "overlap": "skip", "jitter_s": "2 min",
    })  # fmt: skip
    refused = told(page.post(at, {**form, "arg.copies": "none"}))
    assert "copies" in refused
    assert "ann@example.org" in refused, "what was typed stays"
    made = page.post(at, form)
    one = stored()
    assert made["Location"] == f"{HERE}/{one.pk}/"
    assert (one.kind, one.rule) == ("weekly", {"weekdays": ["mon", "fri"], "times": ["07:30", "18:00"]})
    assert (one.time_zone, one.overlap, one.jitter_s, one.created_by) == ("Europe/Berlin", "skip", 120, "user:ann")
    assert one.task == {
        "handler": "mail.send", "tier": "basic", "tags": ["eu", "nightly"],
        "kwargs": {"to": "ann@example.org", "copies": 2, "draft": True},
    }  # fmt: skip
    shown = told(page.get(f"{HERE}/{one.pk}/"))
    assert "each Monday and Friday at 07:30 and 18:00, Europe/Berlin" in shown
    assert f'href="{HERE}/{one.pk}/edit/"' in shown
    at = f"{HERE}/{one.pk}/edit/"
    assert page.post(at, sent(page, at)).status_code == 302
    assert stored().version == one.version, "nothing was changed"
    before = one.next_fire_at
    changed = sent(page, at, **{"arg.copies": "3", "arg.draft": None})
    page.post(at, changed)
    one = stored()
    assert one.task["kwargs"] == {"to": "ann@example.org", "copies": 3, "draft": False}
    assert one.next_fire_at == before, "its times were not touched"
    assert "it was changed since" in told(page.post(at, changed)), "by somebody else, meanwhile"
    page.post(at, sent(page, at, kind="interval", every_s="90 min", end_at="2099-01-31T09:00"))
    one = stored()
    assert (one.kind, one.rule, str(one.end_at)) == ("interval", {"every_s": 5400}, "2099-01-31 09:00:00+00:00")
    page.post(at, sent(page, at, end_at=""))
    assert stored().end_at is None


def test_nothing_of_one_that_the_form_does_not_show_is_lost(tenant: Tenant) -> None:
    Handler.objects.create(name="mail.send", schema=SCHEMA)
    page = browser_of(tenant, "operator")
    task = {
        "handler": "mail.send", "total_attempts": 7, "metadata": {"a": "1"}, "category": "offpeak",
        "kwargs": {"to": "ann@example.org", "text": " two\nlines"},
    }  # fmt: skip
    one = make(tenant, "kept", kind="monthly", rule={"days": [1, "last"], "short_months": "skip"}, task=task)
    at = f"{HERE}/{one.pk}/edit/"
    page.post(at, sent(page, at, times="06:00"))
    one = stored()
    assert one.rule == {"days": [1, "last"], "times": ["06:00"], "short_months": "skip"}
    assert {**one.task, "kwargs": {**one.task["kwargs"], "draft": False}} == {
        **task, "kwargs": {"to": "ann@example.org", "text": " two\nlines", "draft": False}
    }  # fmt: skip
    page.post(at, sent(page, at, **{"task.tier": "basic"}))
    assert stored().task == {**task, "tier": "basic", "kwargs": {**task["kwargs"], "draft": False}}  # type: ignore[dict-item]
    in_order = {"handler": "mail.send", "args": ["ann@example.org", 2]}
    Schedule.objects.unscoped().all().delete()
    one = make(tenant, "in order", task=in_order)
    at = f"{HERE}/{one.pk}/edit/"
    page.post(at, sent(page, at, **{"task.priority": "5"}))
    assert stored().task == {**in_order, "priority": 5}


def test_templates_workflows_and_what_is_gone(tenant: Tenant) -> None:
    page = browser_of(tenant, "operator")
    flow = {"tasks": [{"name": "a", "handler": HANDLER, "args": [{"$param": "width"}]}]}
    parameters = {"properties": {"width": {"type": "integer", "default": 200}}, "required": ["width"]}
    templates.store(tenant, {"name": "thumbs", "parameters": parameters, "workflow": flow}, actor="test")
    at = f"{HERE}/new/?template=thumbs"
    page.post(at, sent(page, at, **{"name": "t", "arg.width": "300", "kind": "cron", "cron": "30 7 * * mon"}))
    one = stored()
    assert one.workflow == {"template": "thumbs", "parameters": {"width": 300}}
    assert one.rule == {"cron": "30 7 * * mon"}
    one.delete()
    at = f"{HERE}/new/?workflow="
    plain = {"tasks": [{"name": "a", "handler": HANDLER}]}
    assert "workflow" in told(page.post(at, sent(page, at, name="w", kind="daily", workflow="{")))
    page.post(at, sent(page, at, name="w", kind="daily", workflow='{"tasks": [{"name": "a", "handler": "demo.echo"}]}'))
    assert stored().workflow == plain
    assert page.get(f"{HERE}/new/?handler=no.such").status_code == 404
    Schedule.objects.unscoped().update(task={"handler": "gone.away"}, workflow=None)
    at = f"{HERE}/{stored().pk}/edit/"
    assert "handler: gone.away" in page.get(at).context["form"]["fields"][11].value, "as it is stored"
    page.post(at, sent(page, at, times="09:00"))
    assert (stored().rule, stored().task) == ({"times": ["09:00"]}, {"handler": "gone.away"})


def test_the_form_as_it_stands_is_told_in_words(tenant: Tenant) -> None:
    page = browser_of(tenant, "operator")
    given = {"kind": "weekly", "weekdays": ["mon"], "times": "07:30", "time_zone": "Europe/Berlin"}
    shown = told(page.post(f"{HERE}/firings/", given))
    assert "Each Monday at 07:30, Europe/Berlin" in shown
    assert shown.count("07:30:00 CE") == 5
    assert "<p>At: " in told(page.post(f"{HERE}/firings/", {**given, "times": "25:00"})), "as the form calls it"
    assert "<p>When: " in told(page.post(f"{HERE}/firings/", {}))
    assert not Schedule.objects.unscoped().exists()


def test_a_page_and_a_refusal_speak_in_the_words_of_the_form(tenant: Tenant) -> None:
    task = {"handler": HANDLER, "kwargs": {"month": "May"}, "execution_cap_s": 90}
    one = make(tenant, kind="daily", rule={"times": ["07:30"]}, time_zone="Europe/Berlin", task=task)
    page = browser_of(tenant, "operator")
    shown = told(page.get(f"{HERE}/{one.pk}/"))
    assert "<dt>arguments</dt><dd>month: May</dd>" in shown
    assert "<dt>execution cap</dt><dd>90 s</dd>" in shown
    assert "&quot;kwargs&quot;" not in shown
    assert "07:30:00 CE" in shown, "in its own time zone"
    at = f"{HERE}/{one.pk}/edit/"
    refused = told(page.post(at, sent(page, at, times="25:99")))
    assert "At: &#x27;25:99&#x27; is not a time of day" in refused
    assert "rule.times" not in refused


def test_what_is_submitted_is_told_in_words() -> None:
    tasks = [{"name": "load"}, {"handler": "mail.send"}, {"script_path": "a.sh"}]
    assert work_words({}, {"tasks": tasks, "tags": ["x"]}) == {
        "tags": ["x"],
        "tasks": "3: load, mail.send and a script",
    }
    assert work_words({}, {"template": "t", "parameters": {"day": 1}}) == {"template": "t", "parameters": {"day": 1}}
    assert work_words({"args": [1], "handler": "h", "tier": "basic"}, None) == {
        "handler": "h", "arguments in order": [1], "tier": "basic",
    }  # fmt: skip


TASKS: list[dict[str, Any]] = [
    {"handler": "mail.send", "kwargs": {"to": "ann@example.org", "draft": True}, "tier": "basic", "category": "offpeak",
     "priority": 0, "delay_tolerance_s": 0.5, "on_late": "give_up", "execution_cap_s": 90, "total_attempts": 1},
    {"handler": "mail.send", "args": ["ann@example.org", 2], "tags": ["eu", "nightly"], "mutex_key": "books",
     "require_labels": ["ssd", "gpu=a100"], "metadata": {"order": "7102", "note": "a: b"}},
    {"handler": HANDLER, "args": [["x"], "7", 7, {"a": [1]}], "kwargs": {"limit": "5", "days": ["mon"], "a:b": None},
     "expires_in_s": 3600, "mutex_limit": 2, "mutex_scope": "both", "rate_key": "mail", "checkpoints": True,
     "resources": {"memory_mb": 512}, "retry": {"base_s": 2, "factor": 2}, "prefer_labels": ["eu"]},
    {"script_path": "nightly.sh", "tier": "basic", "tags": ["a, b"]},
    {"handler": "gone.away", "metadata": {"a": "1"}, "args": [1, "two"]},
]  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_whatever_a_task_has_survives_being_opened_and_saved(tenant: Tenant, task: Any) -> None:
    Handler.objects.create(name="mail.send", schema=SCHEMA)
    page = browser_of(tenant, "operator")
    one = make(tenant, "kept")
    Schedule.objects.unscoped().update(task=task)
    at = f"{HERE}/{one.pk}/edit/"
    assert page.post(at, sent(page, at)).status_code == 302
    assert (stored().task, stored().version) == (task, one.version), "nothing was changed"
    assert page.post(at, sent(page, at, jitter_s="1 min")).status_code == 302
    assert (stored().task, stored().jitter_s) == (task, 60), "nothing else was changed"


def test_a_task_is_told_in_lines_and_a_refusal_names_the_field(tenant: Tenant) -> None:
    page = browser_of(tenant, "operator")
    at = f"{HERE}/new/?handler={HANDLER}"
    form = sent(page, at, **{
        "name": "lines", "arguments": 'to: ann@example.org\nlimit: 5\ncode: "5"', "task.metadata": "order: 7102",
        "task.total_attempts": "5", "task.require_labels": "ssd", "task": "mutex_limit: 2\nrate_key: mail",
    })  # fmt: skip
    for name, words, label in (
        ("task", "mutex_limit", "Other fields of the task"),
        ("task", "mutex_limit: many", "Other fields of the task, mutex_limit"),
        ("task.metadata", "order 7102", "Metadata"),
        ("task.total_attempts", "0", "Attempts"),
        ("task.require_labels", "=x", "Labels of nodes it needs"),
        ("task.on_late", "cry", "When it is late"),
    ):
        response = page.post(at, {**form, name: words})
        assert label in response.context["refused"]
        assert {each.name: each.value for each in response.context["form"]["fields"]}[name] == words, "it stays"
        assert not Schedule.objects.unscoped().exists()
    assert page.post(at, form).status_code == 302
    assert stored().task == {
        "handler": HANDLER, "kwargs": {"to": "ann@example.org", "limit": 5, "code": "5"}, "metadata": {"order": "7102"},
        "total_attempts": 5, "require_labels": ["ssd"], "mutex_limit": 2, "rate_key": "mail",
    }  # fmt: skip
    shown = told(page.get(f"{HERE}/{stored().pk}/edit/"))
    assert "<details open><summary>Other fields of the task</summary>" in shown
    assert "rate_key: mail" in shown
