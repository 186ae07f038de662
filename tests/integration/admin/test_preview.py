"""A change of a weight or a policy shows what it would have made of the last hour, before it is saved."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from slackwater_resources.models import Handler, Node
from slackwater_tasks.control import policies
from slackwater_tasks.explain.preview import Waits, preview
from slackwater_tasks.models import PolicyChoice, RateLimit, RunTime, Task
from slackwater_tasks.submission import service
from slackwater_tenants.models import Plan, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.admin import form_of, staff, submit
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]


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

    assert "Weight This field is required." in page.post(f"{url}preview/", form | {"weight": ""}).content.decode()

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


def test_what_was_really_waited_stands_beside_the_replay(page: Client, tenant: Tenant) -> None:
    """Tasks that waited for what the replay does not know."""
    worker = HandWorker()
    RunTime.objects.create(tenant=tenant, key=HANDLER, samples=40, mean_us=1e6, long_us=1e6)
    tasks = [submit(tenant) for _ in range(3)]
    Task._plain.filter(pk__in=tasks).update(submitted_at=timezone.now() - timedelta(seconds=300))
    worker.run(*tasks[:2])
    waits = told_of(lambda: None)
    assert waits.mean == waits.p95 == (0.0, 0.0)
    assert [wait and round(wait, -1) for wait in waits.really] == [300, 300], "the third has not begun"
    url = reverse("admin:slackwater_tenants_plan_change", args=[tenant.plan_id])
    text = page.post(f"{url}preview/", form_of(page, url)).content.decode()
    heads = [head.partition("<")[0] for head in text.split("<th>")[1:]]
    assert heads == [
        "Tenant", "Tasks", "Mean wait: as it was", "as it is (replayed)", "with the change (replayed)", "Change",
        "95 in 100 wait at most: as it was", "as it is (replayed)", "with the change (replayed)",
    ]  # fmt: skip
    assert "<td>acme</td><td>3</td><td>5 min</td><td>0 ms</td><td>0 ms</td><td>as now</td><td>5 min</td>" in text


def told_of(changed: Callable[[], object]) -> Waits:
    [waits] = preview(changed, "default").waits
    return waits


def p95(changed: Callable[[], object]) -> float:
    found = told_of(changed).p95[1]
    assert found is not None
    return found


def test_the_hour_keeps_to_rates_mutex_keys_graphs_and_each_lines_order(tenant: Tenant) -> None:
    worker, plan = HandWorker(), tenant.plan
    Node.objects.update(slots={"process": 2})

    def give(**limits: int) -> None:
        vars(plan).update(limits)
        plan.save(update_fields=limits)
        plan.refresh_from_db()

    tasks = [{"name": "first", "handler": HANDLER}, {"name": "then", "handler": HANDLER, "depends_on": ["first"]}]
    made = service.submit_workflow(tenant, {"tasks": tasks})
    for task_id in made.task_ids:
        worker.run(task_id, took_s=3.0)
    assert told_of(lambda: None).mean == (0.0, 0.0), "what needs another task waits from when that has ended"

    for n in range(4):
        worker.run(submit(tenant, name=f"long {n}", mutex_key="ledger"), took_s=8.0)
    before = p95(lambda: None)
    assert before >= 16.0, "one at a time"
    assert p95(lambda: RateLimit.objects.create(tenant=tenant, starts=1, per_s=60)) > before + 60.0
    assert p95(lambda: give(rate_starts=1)) > before + 60.0, "a plan's rate"
    assert p95(lambda: give(max_in_flight=1)) > before
    assert told_of(lambda: Tenant.objects.filter(pk=tenant.pk).update(paused=True)).never == (0, 6)


def test_what_a_tenant_chooses_for_its_lines_orders_them(tenant: Tenant) -> None:
    """Nothing is learnt: the shortest first goes by the caps, as live."""
    worker = HandWorker()
    Node.objects.update(slots={"process": 1})
    for cap_s in (300, 300, 5, 5, 5):
        worker.run(submit(tenant, execution_cap_s=cap_s), took_s=cap_s / 10)
    RunTime.objects.all().delete()

    def choose() -> None:
        policies.choose("order", "shortest_first", {}, cell="default", subject=tenant, actor="test")

    before, after = told_of(choose).mean
    assert before is not None
    assert after is not None
    assert after < before - 10.0
