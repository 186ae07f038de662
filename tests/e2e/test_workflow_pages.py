"""The page of a workflow in a real browser: its graph and timeline, with a few tasks and with five thousand."""

from __future__ import annotations

import re
from copy import copy
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from scheduler_ext.core.states import Outcome
from slackwater_tasks.models import Attempt, Dependency, Task, Workflow, new_id
from slackwater_tasks.submission import service
from slackwater_tenants.models import Tenant
from tests.e2e.test_admin_pages import PICTURES, faults
from tests.support.api import HANDLER
from tests.support.browser import NEEDS, Watched
from tests.support.hand_worker import HandWorker

pytestmark = [*NEEDS, pytest.mark.timeout(600)]


def import_run(tenant: Tenant, worker: HandWorker) -> tuple[UUID, dict[str, UUID]]:
    """A workflow that has ended: one part failed, one was tried twice."""
    needs = {
        "fetch": [], **{f"clean {n}": ["fetch"] for n in range(8)}, "merge": [f"clean {n}" for n in range(8)],
        "report": ["merge"], "mail the report to all who asked for it": ["report"],
    }  # fmt: skip
    tasks = [
        {"name": name, "handler": HANDLER, "depends_on": parents, "condition": "all_done", "total_attempts": 1}
        for name, parents in needs.items()
    ]
    made = service.submit_workflow(tenant, {"name": "nightly import", "tasks": tasks}, actor="user:ann")
    assert made.workflow_id is not None
    ids = dict(zip(needs, made.task_ids, strict=True))
    for name, task_id in ids.items():
        failed = name == "clean 3"
        worker.run(
            task_id,
            outcome=Outcome.FAILED if failed else Outcome.SUCCEEDED,
            error="no" if failed else "",
            logs=f"{name} begins\n3 rows\n",
        )
    began = timezone.now() - timedelta(minutes=10)
    spread(made.workflow_id, began, {ids[f"clean {n}"]: 20 * n for n in range(8)})
    return made.workflow_id, ids


def spread(workflow_id: UUID, began: Any, more: dict[UUID, int]) -> None:
    """Give the attempts of a workflow times as of a real run: each begins 5 s after the one before, for 30 s or more."""
    Workflow.objects.unscoped().filter(pk=workflow_id).update(submitted_at=began)
    Task.objects.unscoped().filter(workflow_id=workflow_id).update(submitted_at=began)
    ended: dict[UUID, Any] = {}
    for task in Task.objects.unscoped().filter(workflow_id=workflow_id).order_by("pk"):
        parents = task.parent_edges.values_list("parent_id", flat=True)
        start = max([began, *(ended[parent] for parent in parents)]) + timedelta(seconds=5 + more.get(task.pk, 0) / 10)
        end = ended[task.pk] = start + timedelta(seconds=30 + more.get(task.pk, 0))
        Attempt.objects.unscoped().filter(task=task).update(started_at=start, running_at=start, finished_at=end)
        Task.objects.unscoped().filter(pk=task.pk).update(finished_at=end)


def large_run(tenant: Tenant, worker: HandWorker, stages: int = 10, wide: int = 500) -> UUID:
    """A workflow of five thousand tasks that have ended, each with two edges to the stage before."""
    made = service.submit_workflow(tenant, {"name": "large", "tasks": [{"name": "x", "handler": HANDLER}]}, actor="t")
    worker.run(*made.task_ids)
    (task,) = Task.objects.unscoped().filter(workflow_id=made.workflow_id)
    (attempt,) = Attempt.objects.unscoped().filter(task=task)
    tasks, attempts, edges = [], [], []
    for n in range(stages * wide):
        task.pk, task.name = new_id(), f"{'load' if n >= wide else 'fetch'}-{n // wide} {n % wide}"
        begin = task.submitted_at + timedelta(seconds=n / 5)
        task.finished_at = end = begin + timedelta(seconds=20 + n % 60)
        attempt.pk, attempt.task_id, attempt.started_at, attempt.running_at, attempt.finished_at = (
            None,
            task.pk,
            begin,
            begin,
            end,
        )
        tasks.append(copy(task))
        attempts.append(copy(attempt))
        if n >= wide:
            edges += [
                Dependency(parent=tasks[n - wide - k], child=tasks[-1], outcome=1) for k in range(2) if n - wide >= k
            ]
    Task.objects.unscoped().bulk_create(tasks)
    Attempt.objects.unscoped().bulk_create(attempts)
    Dependency.objects.bulk_create(edges)
    Workflow.objects.unscoped().filter(pk=made.workflow_id).update(task_count=len(tasks), edge_count=len(edges))
    assert made.workflow_id is not None
    return made.workflow_id


def test_a_workflow_is_read_searched_and_run_again_from_a_task(browser: Watched, tenant: Tenant) -> None:
    page = browser.page
    worker = HandWorker()
    for _ in range(3):
        import_run(tenant, worker)
    workflow_id, ids = import_run(tenant, worker)
    browser.go("slackwater_tasks_workflow_change", workflow_id)
    page.wait_for_selector("#sw-flow-graph[data-drawn=task]")
    found = list(faults(browser, "workflow"))
    assert not found, "\n".join(found)
    for name in ("sw_workflow_runs", "sw_workflow_output"):
        browser.go(name, workflow_id)
        found += list(faults(browser, name))
    assert not found, "\n".join(found)
    page.set_viewport_size({"width": 1440, "height": 900})
    browser.go("slackwater_tasks_workflow_change", workflow_id)
    page.wait_for_selector("#sw-flow-time[data-drawn]")
    # The timeline: a row for each task, what it waited and ran, and the path that decided the end.
    rows = page.locator("#sw-flow-time .sw-row")
    assert rows.count() == 12
    assert "Critical path: 5 tasks" in page.inner_text("#sw-flow-time h2")
    assert "clean 7: succeeded, waited 19 s, ran 3 min" in str(rows.nth(8).locator("a").get_attribute("aria-label"))
    page.check("[data-critical]")
    assert rows.count() == 5
    page.uncheck("[data-critical]")
    whole = page.inner_text("[data-span]")
    page.click("[aria-label='Zoom into the timeline']")
    assert page.inner_text("[data-span]") != whole
    page.click("#sw-flow-time [data-act=fit]")
    while not re.match(r"([0-4](\.\d)? s|\d+ ms) shown", page.inner_text("[data-span]")):
        page.click("[aria-label='Zoom into the timeline']")
    ticks = page.locator("#sw-flow-time [data-axis] span").all_inner_texts()
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d\.\d", tick) for tick in ticks), ticks
    page.click("#sw-flow-time [data-act=fit]")
    page.select_option("#sw-flow-time [data-by]", "name")
    page.click("#sw-flow-time button:has-text('clean')")
    assert rows.count() == 5 + 8
    # The graph: one box for all that are called alike, a search that leads to a task, and what can be done there.
    page.select_option("#sw-flow-graph [data-by]", "name")
    page.fill("[data-search]", "clean 3")
    page.press("[data-search]", "Enter")
    assert "8 tasks: 1 failed, 7 succeeded" in page.inner_text("[data-strip]")
    page.select_option("#sw-flow-graph [data-by]", "task")
    page.press("[data-search]", "Enter")
    assert "clean 3" in page.inner_text("[data-strip]")
    page.focus("[data-stage]")
    for key in ("+", "-", "ArrowLeft", "0"):
        page.keyboard.press(key)
    page.click("[data-strip] button:has-text('Run again from here')")
    page.fill("#reason", "the input was wrong")
    page.click("#confirm button")
    page.wait_for_selector("text=4 tasks run again")
    assert str(ids["clean 3"]) in page.url
    assert browser.troubles == []


CROSSED = """() => {
  const cy = document.getElementById("sw-flow-graph").cy;
  const near = (at, middle, size) => Math.abs(at - middle) < size / 2 - 1;
  const inside = (x, y, box) => near(x, box.position("x"), box.width()) && near(y, box.position("y"), box.height());
  const crossed = [];
  for (const edge of cy.edges()) {
    const points = [edge.sourceEndpoint(), ...(edge.segmentPoints() || []), edge.targetEndpoint()];
    for (let n = 0; n + 1 < points.length; n++)
      for (let part = 0; part <= 1; part += 0.01) {
        const [from, to] = [points[n], points[n + 1]];
        const [x, y] = ["x", "y"].map((axis) => from[axis] + (to[axis] - from[axis]) * part);
        for (const box of cy.nodes()) if (inside(x, y, box)) crossed.push(`${edge.id()} through ${box.data("label")}`);
      }
  }
  return [cy.edges().length, [...new Set(crossed)]];
}"""


def test_no_edge_of_a_graph_runs_through_a_box(browser: Watched, tenant: Tenant) -> None:
    chain = ["a", "b", "c", "d"]
    parts = [f"part {n}" for n in range(30)]  # more than one column of boxes has
    needs = {"b": ["a"], "c": ["b"], "d": ["a", "b", "c"], **{name: ["b"] for name in parts}}
    needs |= {"sum": ["a", *parts], "end": ["sum", "a", "b", "d", "part 29"]}
    tasks = [
        {"name": name, "handler": HANDLER, "depends_on": needs.get(name, [])} for name in [*chain, *parts, "sum", "end"]
    ]
    made = service.submit_workflow(tenant, {"name": "far", "tasks": tasks}, actor="t")
    browser.go("slackwater_tasks_workflow_change", made.workflow_id)
    browser.page.wait_for_selector("#sw-flow-graph[data-drawn=task]")
    assert browser.page.evaluate(CROSSED) == [sum(map(len, needs.values())), []]
    browser.go("slackwater_tasks_task_change", made.task_ids[1])
    focus = browser.page.locator(".sw-focus rect")
    middle = browser.page.locator("[data-part=graph] .sw-scroll").bounding_box()
    own = focus.bounding_box()
    assert middle is not None
    assert own is not None
    assert middle["y"] < own["y"] < middle["y"] + middle["height"], "the task itself is in sight"
    assert browser.troubles == []


def test_a_workflow_of_five_thousand_tasks_is_usable(browser: Watched, tenant: Tenant) -> None:
    page = browser.page
    page.set_default_timeout(180_000)
    workflow_id = large_run(tenant, HandWorker())
    browser.go("slackwater_tasks_workflow_change", workflow_id)
    page.wait_for_selector("#sw-flow-time[data-drawn]")
    usable = page.evaluate("performance.now() / 1000")
    found = list(faults(browser, "workflow-large"))
    assert not found, "\n".join(found)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.select_option("#sw-flow-time [data-by]", "task")
    assert page.locator("#sw-flow-time .sw-row").count() < 60, "only what is in sight is in the page"
    page.evaluate("document.querySelector('[data-rows]').scrollTop = 1e9")
    page.wait_for_selector("text=load-9 499")
    asked = page.evaluate("performance.now() / 1000")
    page.select_option("#sw-flow-graph [data-by]", "task")
    page.wait_for_selector("#sw-flow-graph[data-drawn=task] canvas")
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))")
    each = page.evaluate("performance.now() / 1000") - asked
    page.fill("[data-search]", "load-7 77")
    page.press("[data-search]", "Enter")
    assert "load-7 77" in page.inner_text("[data-strip]")
    if PICTURES:
        told = f"usable {usable:.1f} s after it was asked for; a box for each task {each:.1f} s after that was chosen"
        (Path(PICTURES) / "workflow-large.txt").write_text(told)
        page.screenshot(path=Path(PICTURES) / "workflow-found.png", full_page=True)
        page.click("#sw-flow-graph [data-act=fit]")
        page.fill("[data-search]", "")
        page.screenshot(path=Path(PICTURES) / "workflow-each.png", full_page=True)
    assert browser.troubles == []
