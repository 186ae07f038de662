"""Where a person reads or fills in, there are units and words; JSON is told by its field when it cannot be read."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django import forms
from django.http import QueryDict
from django.test import Client
from django.urls import reverse

from slackwater_adminkit.buttons import CHOSEN
from slackwater_adminkit.display import JsonField
from slackwater_adminkit.units import ByNameField, DefaultsField, ValuesField
from slackwater_tasks.models import PolicyChoice
from slackwater_tenants.models import Plan, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.admin import staff

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        (DefaultsField(), {"mail.*": {"category": "urgent", "delay_tolerance_s": 5}}, "mail.*: urgent, 5 s"),
        (DefaultsField(), {"a": {"delay_tolerance_s": 0.5}, "b": {"category": "offpeak"}}, "a: 0.5 s\nb: offpeak"),
        (ValuesField(), {"quantum_ms": 2_000, "weight": 3}, "quantum_ms: 2 s\nweight: 3"),
        (ValuesField(), {"quanta_ms": [1_000, 500], "mode": "fair"}, "quanta_ms: 1 s, 500 ms\nmode: fair"),
        (ValuesField(), {"quanta_ms": [1_000], "on": True}, "quanta_ms: 1 s,\non: true"),
        (ValuesField(), {"pools": {"batch": {"weight": 2}}}, 'pools: {"batch": {"weight": 2}}'),
        (ValuesField(), {"base_s": 2.5, "word": "7"}, 'base_s: 2.5 s\nword: "7"'),
    ],
)
def test_what_stands_by_name_is_written_on_lines(field: ByNameField, value: Any, text: str) -> None:
    assert field.prepare_value(value) == text
    assert field.to_python(text) == value
    assert not field.has_changed(value, text)


@pytest.mark.parametrize(
    ("field", "text", "fault"),
    [
        (DefaultsField(), "mail.*: soon", "mail.*: 'soon' is neither a category"),
        (DefaultsField(), "mail.*", "each line is a name"),
        (ValuesField(), "quantum_ms: soon", "quantum_ms: must be a number with a unit"),
        (ValuesField(), '{"a"', "nor JSON"),
        (JsonField(called="args"), "[1,", "args: is not JSON: Expecting value: line 1 column 4"),
    ],
)
def test_what_cannot_be_read_is_told_by_its_name(field: forms.Field, text: str, fault: str) -> None:
    with pytest.raises(forms.ValidationError, match=re.escape(fault)):
        field.clean(text)


def test_who_may_only_look_reads_units_and_words(tenant: Tenant) -> None:
    defaults = {"mail.*": {"category": "urgent", "delay_tolerance_s": 5}}
    Plan.objects.filter(pk=tenant.plan_id).update(handler_defaults=defaults, max_urgent_permille=250)
    choice = PolicyChoice.objects.create(kind="order", policy="round_robin", parameters={"quantum_ms": 2_000})
    viewer = staff("slackwater_tenants.view_plan", "slackwater_tasks.view_policychoice")
    plan = viewer.get(reverse("admin:slackwater_tenants_plan_change", args=[tenant.plan_id])).text
    for words in ("25 %", "16 MiB", "mail.*: urgent, 5 s", "urgent: 5 s"):
        assert words in plan, words
    for raw in ("16777216", "permille", "‰", "{&quot;", "millionths"):
        assert raw not in re.sub(r'class="[^"]*"', "", plan), raw
    shown = viewer.get(reverse("admin:slackwater_tasks_policychoice_change", args=[choice.pk])).text
    assert "quantum_ms: 2 s" in shown


def test_many_rows_come_in_one_field_and_too_many_fields_are_told(page: Client, tenant: Tenant) -> None:
    keys = [tenant.pk, *(create_tenant(f"tenant-{n}", "T").pk for n in range(2))]
    listed = reverse("admin:slackwater_tenants_tenant_changelist")
    form = QueryDict(mutable=True)
    form.update({"action": "pause", "reason": "too loud", CHOSEN: ",".join(map(str, keys))})
    undo = page.post(listed, form.dict(), follow=True).text
    assert Tenant.objects.filter(paused=True).count() == 3
    (sent,) = re.findall(rf'name="{CHOSEN}" value="([^"]+)"', undo)
    assert sorted(sent.split(",")) == sorted(map(str, keys))
    boxes = {"action": "pause", "_selected_action": [*map(str, keys), *map(str, range(10**6, 10**6 + 5_000))]}
    assert "3 tenants" in page.post(listed, boxes).text
    page.raise_request_exception = False
    refused = page.post(listed, {"_selected_action": [str(n) for n in range(10_001)]})
    assert refused.status_code == 400
    assert "Choose fewer boxes" in refused.text
