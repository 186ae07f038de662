"""The admin in a real browser: it moves by itself, its forms work, and it asks nobody but its own server."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest

from scheduler_ext.core.states import Outcome
from slackwater_tasks.models import Task
from slackwater_tasks.submission import service
from slackwater_tenants.models import Tenant
from tests.support.api import HANDLER
from tests.support.browser import NEEDS, Watched
from tests.support.hand_worker import HandWorker

pytestmark = NEEDS


def submit(tenant: Tenant, **fields: Any) -> Any:
    """One task, submitted."""
    return service.submit(tenant, {"handler": HANDLER, **fields}, actor="test").task_ids[0]


def test_the_live_page_moves_by_itself(browser: Watched, tenant: Tenant) -> None:
    page = browser.page
    browser.go("index")
    waiting = page.locator("#sw-tiles .sw-tile", has_text="Waiting").locator("b")
    page.wait_for_function("document.querySelector('#sw-tiles b')?.textContent === '0'")
    page.evaluate("window.notReloaded = true")
    worker = HandWorker("node-9")
    running = submit(tenant)
    for _ in range(3):
        submit(tenant, tier="regular")
    worker.start(running)
    page.wait_for_function("document.querySelector('#sw-tiles b')?.textContent === '3'")
    page.wait_for_selector("#sw-nodes >> text=node-9")
    assert waiting.inner_text() == "3"
    assert page.locator("#sw-lines tbody tr").count() == 1
    assert "acme" in page.locator("#sw-tenants").inner_text()
    for window, by in (("5min", "tenant"), ("7d", "handler")):
        page.click(f"#sw-charts button[value='{window}']")
        page.click(f"#sw-charts button[value='{by}']")
        page.wait_for_selector(f"#sw-charts[data-shown='{window} {by}']")
    # The charts tell times in UTC, as the rest of the page, wherever the reader is.
    page.click("#sw-charts button[value='5min']")
    page.wait_for_selector("#sw-charts[data-shown='5min handler']")
    told = page.evaluate("Chart.getChart('sw-chart-ended').data.labels.at(-1)")
    now = datetime.now(UTC)
    behind = now - datetime.combine(now, time.fromisoformat(told), UTC)
    assert behind % timedelta(days=1) < timedelta(minutes=5), told
    assert page.evaluate("window.notReloaded")
    assert browser.troubles == []


@pytest.mark.parametrize(
    ("most_s", "unit", "unit_s"),
    [(0.4, "ms", 0.001), (90, "s", 1), (299, "min", 60), (440, "min", 60), (13_000, "h", 3600)],
)
def test_an_axis_of_times_names_its_ticks_as_they_are(
    browser: Watched, most_s: float, unit: str, unit_s: float
) -> None:
    page = browser.page
    figures = ("ended", "failed", "waiting", "delay_p50", "delay_p95", "run_p50", "run_p95")
    total = {"ended": 2, "failed": 0, "start_delay": {"p50": 150, "p95": most_s}, "run_time": None}
    told = {
        "window": "1h", "by": "all", "step_s": 60, "at": [0, 60], "slots": [],
        "series": [{"key": "all", **{name: [0, most_s] for name in figures}, "total": total}],
    }  # fmt: skip
    page.route("**/live/charts.json*", lambda route: route.fulfill(json=told))
    browser.go("index")
    page.wait_for_selector("#sw-charts[data-shown='1h all']")
    ticks = page.evaluate("Chart.getChart('sw-chart-delay').scales.y.ticks.map((one) => [one.value, one.label])")
    assert len(ticks) > 2
    for value_s, label in ticks:
        number, _, told_in = label.partition(" ")
        assert float(number) * unit_s == pytest.approx(value_s), label
        assert told_in == unit
    assert "2.5 min / " in page.inner_text("#sw-totals"), "nor is it rounded elsewhere"
    assert browser.troubles == []


def test_a_task_is_handed_in_and_cancelled(browser: Watched, tenant: Tenant) -> None:
    page = browser.page
    browser.go("slackwater_tasks_task_add")
    page.select_option("#id_tenant", str(tenant.pk), force=True)
    page.select_option("#id_handler", HANDLER, force=True)
    page.fill("#id_name", "from the browser")
    page.fill("#id_priority", "9999")
    page.click("button[name=_save]")
    page.wait_for_selector("text=priority: must be from 0 to 1000")
    assert not Task.objects.unscoped().exists()
    page.fill("#id_priority", "5")
    page.click("button[name=_save]")
    page.wait_for_selector("text=The task was accepted.")
    task = Task.objects.unscoped().get()
    assert (task.name, task.priority) == ("from the browser", 5)
    assert page.locator(".sw-head .sw-badge").first.inner_text() == "ready"
    page.click("text=Cancel >> nth=0")
    page.wait_for_selector(".sw-head .sw-badge.sw-cancelled")
    assert browser.troubles == []


def test_a_tasks_page_follows_it(browser: Watched, tenant: Tenant) -> None:
    page = browser.page
    tasks = [
        {"name": "parent", "handler": HANDLER},
        {"name": "child", "handler": HANDLER, "depends_on": ["parent"]},
    ]
    made = service.submit_workflow(tenant, {"name": "pair", "tasks": tasks}, actor="test")
    worker = HandWorker()
    started = worker.start(made.task_ids[0])
    browser.go("slackwater_tasks_task_change", made.task_ids[0])
    page.wait_for_selector(".sw-head .sw-badge.sw-running")
    worker.end(started, result='{"answer": 42}', logs="said by the task\n")
    page.wait_for_selector(".sw-head .sw-badge.sw-succeeded")
    page.wait_for_selector("text=said by the task")
    page.click("svg.sw-graph a:has-text('child')")
    page.wait_for_selector("h2:has-text('Timeline')")
    assert str(made.task_ids[1]) in page.url
    assert browser.troubles == []


def test_lists_and_workflows_move_and_keep_what_is_selected(browser: Watched, tenant: Tenant) -> None:
    page = browser.page
    kept, begins = submit(tenant, name="kept"), submit(tenant, name="begins")
    page.clock.install()
    browser.go("slackwater_tasks_task_changelist")
    page.check(f"input.action-select[value='{kept}']")
    worker = HandWorker()
    worker.start(begins)
    submit(tenant, name="new")
    page.clock.run_for(10_000)
    page.wait_for_selector("tbody:has-text('begins') .sw-running")
    page.wait_for_selector("text=1 more have come: show them.")
    assert page.is_checked(f"input.action-select[value='{kept}']")
    page.click("text=1 more have come")
    page.wait_for_selector("#result_list tbody:has-text('new')")
    tasks = [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "depends_on": ["a"]}]
    made = service.submit_workflow(tenant, {"name": "pair", "tasks": tasks}, actor="test")
    browser.go("slackwater_tasks_workflow_change", made.workflow_id)
    page.focus("text=Terminate")
    worker.run(made.task_ids[0])
    page.clock.run_for(5_000)
    page.wait_for_selector(".sw-counts .sw-succeeded")
    assert page.evaluate("document.activeElement.textContent.trim()") == "Terminate…"
    assert browser.troubles == []


def test_pages_hold_together_in_the_dark_and_on_a_phone(browser: Watched, tenant: Tenant) -> None:
    page = browser.page
    submit(tenant, name="a task with quite a long name that has to fit somewhere")
    page.set_viewport_size({"width": 390, "height": 800})
    for name in (
        "index",
        "slackwater_tasks_task_changelist",
        "slackwater_tasks_task_add",
        "slackwater_tenants_apikey_add",
    ):
        browser.go(name)
        page.wait_for_load_state("load")
        wider = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wider <= 0, f"{name} is {wider} px too wide for a phone"
    assert browser.troubles == []


def test_the_name_of_a_column_stands_on_one_line_on_a_phone(browser: Watched, tenant: Tenant) -> None:
    error = "ValueError: " + "no such order in any of the lists " * 6
    HandWorker().run(submit(tenant, total_attempts=1), outcome=Outcome.FAILED, error=error)
    page = browser.page
    page.set_viewport_size({"width": 390, "height": 844})
    browser.go("slackwater_tasks_deadletter_changelist")
    lines = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("#result_list [data-label]")].map((cell) => {
            const name = getComputedStyle(cell, "::before");
            return [cell.dataset.label, parseFloat(name.height) / parseFloat(name.lineHeight)];
        }))"""
    )
    assert lines.keys() >= {"reason", "next retry at"}
    assert [name for name, count in lines.items() if not 0 < count < 1.5] == []
    wider = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wider <= 0
    assert browser.troubles == []


def test_the_reference_page_and_every_kind_of_page_live_with_their_policies(browser: Watched, tenant: Tenant) -> None:
    task_id = submit(tenant, name="x")
    for name, args in (
        ("index", ()), ("slackwater_tasks_task_changelist", ()), ("slackwater_tasks_task_change", (task_id,)),
        ("slackwater_tasks_task_add", ()),
        ("slackwater_monitoring_alert_changelist", ()), ("auth_user_changelist", ()), ("slackwater_schedules_schedule_add", ()),
        ("sw_sizes", ()), ("sw_run_times", ()), ("password_change", ()),
    ):  # fmt: skip
        browser.go(name, *args)
        asks_on = name in ("index", "slackwater_tasks_task_change")  # they ask again and again what is new
        browser.page.wait_for_load_state("load" if asks_on else "networkidle")
        # Alpine works: it has taken its marks off the page.
        assert browser.page.evaluate("typeof window.Alpine") == "object", name
    browser.page.goto(browser.base + "/api/docs/")
    browser.page.wait_for_selector(".opblock-tag", timeout=120_000)  # it renders the whole document of the API
    assert browser.troubles == []
    # What a page may not do, it cannot: a script that somebody got into it does not run.
    browser.go("index")
    browser.page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.broken = true";
        document.body.append(script);
    }""")
    assert browser.page.evaluate("window.broken === undefined")
    assert len(browser.troubles) == 1


def test_a_schedule_is_filled_in_by_kind_and_a_search_is_kept(browser: Watched, tenant: Tenant) -> None:
    page = browser.page
    browser.go("slackwater_schedules_schedule_add")
    page.check("input[name=kind][value=weekly]", force=True)
    page.wait_for_selector(".field-weekdays >> visible=true")
    shown = {
        name for name in ("every_s", "times", "weekdays", "cron", "at", "template") if page.is_visible(f".field-{name}")
    }
    assert shown == {"times", "weekdays"}
    assert page.is_visible("#id_tier")
    assert not page.is_visible("#id_more"), "what is rare is folded away"
    page.click("text=More about the task")
    page.wait_for_selector("#id_more >> visible=true")
    page.check("input[name=starts][value=template]", force=True)
    page.wait_for_selector("text=More about the task", state="hidden")
    assert not page.is_visible("#id_tier")
    page.check("input[name=weekdays][value=mon]", force=True)
    page.fill("#id_times", "07:30")
    page.click("#sw-firings button")
    page.wait_for_selector("text=Each Monday at 07:30, UTC. Next:")
    assert page.locator("#sw-firings li").count() == 5
    submit(tenant, name="cafe")
    browser.go("slackwater_tasks_task_changelist")
    page.goto(f"{page.url}?q=name:cafe")
    page.fill(".sw-keep input[name=name]", "the cafe")
    page.click("text=Save view")
    page.click(".sw-view >> text=the cafe")
    page.wait_for_selector(".sw-view.sw-chosen")
    assert page.locator("#result_list tbody").count() == 1
    assert browser.troubles == []
