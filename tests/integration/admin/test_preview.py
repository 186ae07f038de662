"""A change of a weight or a policy shows what it would have made of the last hour, before it is saved."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from slackwater_resources.models import Handler
from slackwater_tasks.models import PolicyChoice, RunTime
from slackwater_tasks.submission import service
from slackwater_tenants.models import Plan, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.admin import staff, submit
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]


def form_of(page: Client, url: str, **fields: Any) -> dict[str, Any]:
    """The form as the page sends it, with some fields changed."""
    form = page.get(url).context["adminform"].form
    given = {name: form[name].value() for name in form.fields}
    return {name: value for name, value in given.items() if value is not None and value is not False} | fields


def test_a_heavier_plan_shortens_its_tenants_waits_and_nothing_is_saved(page: Client, tenant: Tenant) -> None:
    url = reverse("admin:slackwater_tenants_plan_change", args=[tenant.plan_id])
    form = form_of(page, url, weight="20")
    assert "no node is at work" in page.post(f"{url}preview/", form).content.decode()
    worker = HandWorker()
    assert "nothing ran" in page.post(f"{url}preview/", form).content.decode()
    other = create_tenant("globex", "Globex", Plan.objects.create(slug="small", name="Small").slug)
    for _ in range(40):
        for one in (tenant, other):
            submit(one)
    script = service.store_script(other, "x.py", b"print(1)\n").sha256
    service.submit(other, {"script": script, "name": "night 1"})
    # Of a handler that a tenant has never run, it goes by the others' runs, as rounds do.
    RunTime.objects.create(tenant=tenant, key=HANDLER, samples=40, mean_us=3e6, long_us=9e6)
    assert (
        "80 tasks. 1 task was left out: nobody knows the run time."
        in page.post(f"{url}preview/", form).content.decode()
    )
    worker.run(submit(other))
    text = page.post(f"{url}preview/", form).content.decode()
    acme, globex = (text.index(f"<td>{slug}</td>") for slug in ("acme", "globex"))
    told = {
        "acme": text[acme : globex if globex > acme else None],
        "globex": text[globex : acme if acme > globex else None],
    }
    assert "shorter" in told["acme"]
    assert "longer" in told["globex"]
    assert Plan.objects.get(pk=tenant.plan_id).weight == 1
    same = page.post(f"{url}preview/", form_of(page, url)).content.decode()
    assert same.count("as now") == 2

    choice = reverse("admin:slackwater_tasks_policychoice_add")
    given = {"kind": "share", "policy": "equal", "parameters": "{}", "cell": "default"}
    assert "81 tasks" in page.post(f"{choice}preview/", given).content.decode()
    bad = page.post(f"{choice}preview/", {**given, "parameters": '{"no": 1}'}).content.decode()
    assert "no" in bad
    assert "81 tasks" not in bad
    assert not PolicyChoice.objects.exists()
    viewer = staff("slackwater_tenants.view_plan")
    assert viewer.post(f"{url}preview/", form).status_code == 403


def test_latest_starts_hold_in_the_replay(page: Client, tenant: Tenant) -> None:
    """In the order of deadlines the short tasks that may be delayed least no longer stand behind the long ones."""
    HandWorker()
    Handler.objects.create(name="demo.long")
    for name, mean_us, tolerance_s in (("demo.long", 20e6, 900), (HANDLER, 1e6, 60)):
        RunTime.objects.create(tenant=tenant, key=name, samples=40, mean_us=mean_us, long_us=mean_us)
        for _ in range(20):
            service.submit(tenant, {"handler": name, "delay_tolerance_s": tolerance_s})
    url = reverse("admin:slackwater_tasks_policychoice_add")
    form = {"kind": "order", "policy": "fifo", "parameters": "{}", "cell": "default"}
    assert "as now" in page.post(f"{url}preview/", form).content.decode()
    assert "shorter" in page.post(f"{url}preview/", {**form, "policy": "deadline"}).content.decode()
