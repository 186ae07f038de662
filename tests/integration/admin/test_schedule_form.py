"""The form of a schedule: fields by kind, what it starts, and its firings foretold in words."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from slackwater_schedules.models import Schedule
from slackwater_schedules.words import rule_words
from slackwater_tasks.models import WorkflowTemplate
from slackwater_tenants.models import Tenant
from tests.support.admin import act, schedule_form, staff
from tests.support.api import HANDLER

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]
ADD = "admin:slackwater_schedules_schedule_add"


def test_adding_changing_pausing_deleting(page: Client, tenant: Tenant) -> None:
    response = page.post(reverse(ADD), schedule_form(tenant, args='["a"]', priority="3"))
    assert response.status_code == 302, response.context["adminform"].form.errors
    schedule = Schedule.objects.unscoped().get()
    assert (schedule.created_by, schedule.next_fire_at.hour) == ("user:root", 3)
    assert schedule.task == {"handler": HANDLER, "args": ["a"], "priority": 3}
    url = reverse("admin:slackwater_schedules_schedule_change", args=[schedule.pk])
    form = page.get(url).context["adminform"].form
    assert [form.initial[name] for name in ("times", "priority", "more", "starts")] == ["03:00", 3, None, "handler"]
    given = {"times": "04:00", "args": '["a"]', "priority": "3", "missed_window_s": "2 h"}
    response = page.post(url, schedule_form(tenant, **given))
    assert response.status_code == 302, response.context["adminform"].form.errors
    schedule.refresh_from_db()
    assert (schedule.version, schedule.next_fire_at.hour, schedule.missed_window_s) == (2, 4, 7_200)
    page.post(url, schedule_form(tenant, **given))
    schedule.refresh_from_db()
    assert schedule.version == 2  # nothing had changed
    assert "each day at 04:00, UTC" in page.get(reverse("admin:slackwater_schedules_schedule_changelist")).text
    act(page, "slackwater_schedules_schedule", "pause", schedule.pk)
    schedule.refresh_from_db()
    assert (schedule.paused, schedule.next_due_at) == (True, None)
    WorkflowTemplate._plain.create(
        tenant=tenant, name="import", version=1, workflow={"tasks": [{"name": "a", "handler": HANDLER}]},
        parameters={"type": "object", "properties": {"day": {"type": "string"}}},
    )  # fmt: skip
    weekly: dict[str, Any] = {"kind": "weekly", "weekdays": ["mon", "fri"], "starts": "template", "template": "import"}
    response = page.post(url, schedule_form(tenant, **weekly, parameters='{"day": "mon"}'))
    assert response.status_code == 302, response.context["adminform"].form.errors
    schedule.refresh_from_db()
    assert schedule.workflow == {"template": "import", "parameters": {"day": "mon"}}
    assert (schedule.task, schedule.rule) == ({}, {"weekdays": ["mon", "fri"], "times": ["03:00"]})
    assert page.get(url).context["adminform"].form.initial["template"] == "import"
    page.post(reverse("admin:slackwater_schedules_schedule_delete", args=[schedule.pk]), {"post": "yes"})
    assert not Schedule.objects.unscoped().exists()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"times": "25:00"}, "times"),
        ({"kind": "interval", "every_s": "soon"}, "every_s"),
        ({"kind": "interval"}, "every_s"),
        ({"kind": "cron", "cron": "every day"}, "cron"),
        ({"kind": "weekly"}, "weekdays"),
        ({"kind": "monthly", "days": "1, 32"}, "days"),
        ({"kind": "monthly", "days": "²"}, "days"),
        ({"kind": "once", "at": "tomorrow"}, "at"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"handler": "no.such"}, "handler"),
        ({"more": "depends_on: []"}, "more"),
        ({"more": "mutex_limit: many"}, "more"),
        ({"more": "priority: 5", "priority": "3"}, "more"),
        ({"more": "priority: 5000"}, "more"),
        ({"more": "prority: 5"}, "more"),
        ({"priority": "5000"}, "priority"),
        ({"tier": "golden"}, "tier"),
        ({"execution_cap_s": "long"}, "execution_cap_s"),
        ({"total_attempts": "0"}, "total_attempts"),
        ({"on_late": "cry"}, "on_late"),
        ({"tags": "a, " + "b" * 64}, "tags"),
        ({"require_labels": "gpu=a100, =x"}, "require_labels"),
        ({"metadata": "order 7"}, "metadata"),
        ({"resources": "memory_mb: much"}, "resources"),
        ({"resources": "teeth: 32"}, "resources"),
        ({"retry": "base_s: -1"}, "retry"),
        ({"args": '["a"'}, "args"),
        ({"kwargs": "to ann"}, "kwargs"),
        ({"starts": "template"}, "template"),
        ({"starts": "workflow", "workflow": '{"tasks": []}'}, "workflow"),
        ({"jitter_s": "2000 d"}, "jitter_s"),
    ],
)
def test_what_is_wrong_is_told_at_its_field(page: Client, tenant: Tenant, fields: Any, field: str) -> None:
    response = page.post(reverse(ADD), schedule_form(tenant, **fields))
    assert response.status_code == 200
    assert list(response.context["adminform"].form.errors) == [field]
    assert not Schedule.objects.unscoped().exists()


def test_arguments_are_lines_of_names_and_values_and_come_back_as_they_were(page: Client, tenant: Tenant) -> None:
    lines = 'to: ann@example.org\nlimit: 5\ncode: "5"\ndays: ["mon", "fri"]\nwhere: a: b\nloud: true'
    wanted = {"to": "ann@example.org", "limit": 5, "code": "5", "days": ["mon", "fri"], "where": "a: b", "loud": True}
    given = {"args": 'daily\n7\n"7"\n{"a": 1}', "kwargs": lines}
    assert page.post(reverse(ADD), schedule_form(tenant, **given)).status_code == 302
    schedule = Schedule.objects.unscoped().get()
    assert (schedule.task["args"], schedule.task["kwargs"]) == (["daily", 7, "7", {"a": 1}], wanted)
    url = reverse("admin:slackwater_schedules_schedule_change", args=[schedule.pk])
    form = page.get(url).context["adminform"].form
    shown = form["kwargs"].value().splitlines()
    assert (form["args"].value(), sorted(shown)) == (given["args"], sorted(lines.splitlines()))
    odd = {"args": [["x"], "", " a", "two\nlines", None], "kwargs": {"a:b": 1, "": "2", "{": [], "plain": "[x"}}
    Schedule.objects.unscoped().update(task={"handler": HANDLER, **odd})
    form = page.get(url).context["adminform"].form
    shown = {"args": form["args"].value(), "kwargs": form["kwargs"].value()}
    assert page.post(url, schedule_form(tenant, **shown, times="05:00")).status_code == 302
    schedule.refresh_from_db()
    assert schedule.task == {"handler": HANDLER, **odd}, "whatever it was"


def as_shown(form: Any) -> dict[str, Any]:
    """What a browser sends of a form that nobody touched."""
    shown = {bound.name: bound.value() for bound in form}
    return {name: value for name, value in shown.items() if value is not None}


TASKS: list[dict[str, Any]] = [
    {"handler": HANDLER},
    {"handler": HANDLER, "tier": "basic", "category": "offpeak", "priority": 0, "delay_tolerance_s": 0,
     "on_late": "give_up", "execution_cap_s": 5400, "total_attempts": 1, "tags": ["nightly", "eu"]},
    {"handler": HANDLER, "expires_in_s": 3600, "mutex_key": "books", "mutex_limit": 2, "mutex_scope": "both",
     "require_labels": ["ssd", "gpu=a100"], "prefer_labels": ["eu"], "metadata": {"order": "7102", "note": "a: b"},
     "resources": {"memory_mb": 512, "cpu_milli": 1500}, "retry": {"base_s": 2, "factor": 2}, "rate_key": "mail",
     "webhook": "https://example.org/hook", "checkpoints": True, "name": "books"},
    {"script_path": "nightly.sh", "tier": "basic"},
    {"handler": HANDLER, "args": [], "kwargs": {}, "tags": [], "mutex_key": "", "expires_in_s": None},
    {"handler": HANDLER, "delay_tolerance_s": 0.25, "execution_cap_s": 90.5, "tags": ["a, b", " c"], "priority": 7},
    {"handler": "gone.away", "tier": "gone", "metadata": {"a:b": "1", "{": "x"}, "retry": {"base_s": 0.5}},
]  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_whatever_a_task_has_survives_being_opened_and_saved(page: Client, tenant: Tenant, task: Any) -> None:
    page.post(reverse(ADD), schedule_form(tenant))
    schedule = Schedule.objects.unscoped().get()
    Schedule.objects.unscoped().update(task=task)
    url = reverse("admin:slackwater_schedules_schedule_change", args=[schedule.pk])
    same = as_shown(page.get(url).context["adminform"].form)
    assert page.post(url, same).status_code == 302
    schedule.refresh_from_db()
    assert (schedule.task, schedule.version) == (task, 1), "nothing was changed"
    assert page.post(url, {**same, "jitter_s": "1 min"}).status_code == 302
    schedule.refresh_from_db()
    assert (schedule.task, schedule.jitter_s) == (task, 60), "nothing else was changed"


def test_a_task_is_told_in_fields_with_words(page: Client, tenant: Tenant) -> None:
    given = {
        "tier": "basic", "category": "offpeak", "delay_tolerance_s": "2 h", "on_late": "give_up", "tags": "nightly, eu",
        "execution_cap_s": "1.5 h", "total_attempts": "5", "retry": "base_s: 2 s\nmax_s: 1 h", "metadata": "order: 7102",
        "require_labels": "ssd, gpu=a100", "resources": "memory_mb: 1 GiB", "more": "mutex_limit: 2\nrate_key: mail",
    }  # fmt: skip
    response = page.post(reverse(ADD), schedule_form(tenant, **given))
    assert response.status_code == 302, response.context["adminform"].form.errors
    schedule = Schedule.objects.unscoped().get()
    assert schedule.task == {
        "handler": HANDLER, "tier": "basic", "category": "offpeak", "delay_tolerance_s": 7200, "on_late": "give_up",
        "tags": ["nightly", "eu"], "execution_cap_s": 5400, "total_attempts": 5, "retry": {"base_s": 2, "max_s": 3600},
        "metadata": {"order": "7102"}, "require_labels": ["ssd", "gpu=a100"], "resources": {"memory_mb": 1024},
        "mutex_limit": 2, "rate_key": "mail",
    }  # fmt: skip
    shown = page.get(reverse("admin:slackwater_schedules_schedule_change", args=[schedule.pk]))
    form = shown.context["adminform"].form
    for name, words in given.items():
        assert sorted(str(form[name].value()).splitlines()) == sorted(words.splitlines()), "the words it was given in"
    assert "<details><summary>" in shown.text, "what is rare is folded away"


def test_a_taken_name_is_told_at_its_field(page: Client, tenant: Tenant) -> None:
    page.post(reverse(ADD), schedule_form(tenant))
    response = page.post(reverse(ADD), schedule_form(tenant))
    assert "name" in response.context["adminform"].form.errors
    assert Schedule.objects.unscoped().count() == 1


def test_its_firings_are_foretold_in_words(page: Client, tenant: Tenant) -> None:
    url = reverse("admin:sw_schedule_firings")
    given = {"kind": "monthly", "days": "1, last", "times": "07:30", "time_zone": "Europe/Berlin"}
    told = page.post(url, schedule_form(tenant, **given)).text
    assert "Each month on the 1st and last day at 07:30, Europe/Berlin. Next:" in told
    assert len(re.findall(r"<li>\w+day, \d+ \w+ \d{4}, 07:30:00 CES?T</li>", told)) == 5
    assert "is not a time of day" in page.post(url, schedule_form(tenant, times="25:00")).text
    assert "never" in page.post(url, schedule_form(tenant, kind="once", at="2000-01-01")).text
    assert page.get(url).status_code == 405
    assert staff().post(url, schedule_form(tenant)).status_code == 403
    assert rule_words("interval", {"every_s": 5400}, "UTC") == "every 1.5 h"
    assert rule_words("annually", {"dates": ["12-24"]}, "UTC") == "each year on 24 December at 00:00, UTC"


def test_who_may_only_look_reads_when_and_what_in_words(page: Client, tenant: Tenant) -> None:
    weekly: dict[str, Any] = {"kind": "weekly", "weekdays": ["mon", "fri"], "kwargs": '{"month": "May"}'}
    page.post(reverse(ADD), schedule_form(tenant, **weekly))
    schedule = Schedule.objects.unscoped().get()
    looker = staff("slackwater_schedules.view_schedule")
    shown = looker.get(reverse("admin:slackwater_schedules_schedule_change", args=[schedule.pk])).text
    assert "each Monday and Friday at 03:00, UTC" in shown
    assert "month: May" in shown
    for built in ("weekdays", "cron", "starts", "handler", "parameters"):
        assert f"field-{built}" not in shown
