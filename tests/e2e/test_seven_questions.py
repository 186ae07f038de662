"""What an operator asks at three in the morning, each answered from the live page in at most three clicks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import reverse

from scheduler_ext.core.states import Outcome
from slackwater_monitoring.models import Alert
from slackwater_resources.models import Node
from slackwater_tasks.control import bulk_operations as bulk
from slackwater_tasks.models import DeadLetter, LiveTask, RunTime
from slackwater_tenants.models import Plan, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.admin import submit
from tests.support.api import HANDLER
from tests.support.browser import NEEDS, Watched
from tests.support.figures import tell
from tests.support.hand_worker import HandWorker

pytestmark = [*NEEDS, pytest.mark.timeout(300)]
MOST = 3


class Operator:
    """Opens the live page for a question, and counts clicks; what is typed between them is no click."""

    def __init__(self, browser: Watched) -> None:
        self.browser, self.page, self.clicks = browser, browser.page, 0

    def asks(self) -> Any:
        self.clicks = 0
        self.browser.go("index")
        self.page.wait_for_selector("#sw-tenants table")
        return self.page

    def click(self, where: Any) -> None:
        self.clicks += 1
        assert self.clicks <= MOST, "one click too many"
        (self.page.locator(where) if isinstance(where, str) else where).first.click()


@pytest.fixture
def operator(browser: Watched, tenant: Tenant, request: pytest.FixtureRequest) -> Iterator[Operator]:
    """One tenant holds all four slots of the only node and has more work; another one waits; a second node is lost."""
    busy, gone = HandWorker("node-1"), HandWorker("node-2")
    Node.objects.filter(pk=gone.node.pk).update(state=Node.State.LOST)
    now = gone.node.heartbeat_at
    Alert.objects.create(
        rule="node_lost", cell="default", subject="node-2", detail="not heard for 31 s", since=now, last_seen_at=now,
        raised_at=now,
    )  # fmt: skip
    for n in range(4):
        busy.start(submit(tenant, name=f"report {n}"))
    for n in range(6):
        submit(tenant, name=f"backlog {n}")
    other = create_tenant("globex", "Globex", Plan.objects.create(slug="small", name="Small").slug)
    submit(other, name="letter")
    for each in (tenant, other):
        RunTime.objects.create(tenant=each, key=HANDLER, samples=40, mean_us=3e6, long_us=9e6)
    asked = Operator(browser)
    yield asked
    tell("clicks", question=request.node.name, clicks=asked.clicks)


def test_what_is_stuck_and_why(operator: Operator) -> None:
    page = operator.asks()
    operator.click("#sw-lines a:has-text('globex')")
    operator.click("#result_list a:has-text('letter'), table a:has-text('letter')")
    page.wait_for_selector("#sw-task")
    assert "waits for" in page.inner_text("#sw-task").lower()
    assert operator.browser.troubles == []


def test_who_starves_whom(operator: Operator) -> None:
    page = operator.asks()
    page.wait_for_selector("#sw-shares tr:has-text('globex') >> text=waits")
    assert page.locator("#sw-shares tr:has-text('acme')").count() == 1, "who holds the cell stands beside who waits"
    operator.click("#sw-shares a:has-text('globex')")
    operator.click("#result_list a:has-text('letter'), table a:has-text('letter')")
    page.wait_for_selector(".sw-chain >> text=report")
    assert "acme" in page.inner_text(".sw-chain")
    assert operator.browser.troubles == []


def test_which_node_is_sick(operator: Operator) -> None:
    page = operator.asks()
    page.wait_for_selector("#sw-alerts >> text=node-2")
    assert "lost" in page.inner_text("#sw-nodes tr:has-text('node-2')")
    operator.click("#sw-nodes a:has-text('node-2')")
    page.wait_for_selector("text=ended lately")
    assert operator.browser.troubles == []


def test_what_a_task_did_and_printed(operator: Operator, tenant: Tenant) -> None:
    done = submit(tenant, name="monthly report")
    HandWorker("node-3").run(done, result='{"pages": 12}', logs="reading\nwriting\n")
    page = operator.asks()
    operator.click(f"a[href='{reverse('admin:slackwater_tasks_task_changelist')}']")
    operator.click("#result_list a:has-text('monthly report'), table a:has-text('monthly report')")
    page.wait_for_selector("text=writing")
    assert "pages" in page.inner_text("#sw-task")
    assert operator.browser.troubles == []


def test_requeue_these_two_hundred(operator: Operator, tenant: Tenant) -> None:
    worker = HandWorker("node-4")
    for n in range(200):
        worker.run(submit(tenant, total_attempts=1), outcome=Outcome.FAILED, error=f"ValueError: no order {n}")
    page = operator.asks()
    page.wait_for_selector("#sw-tiles a:has-text('200')")
    operator.click("#sw-tiles a:has-text('200')")
    operator.click(page.get_by_role("link", name="By handler and error"))
    page.fill("[name=reason]", "mended")
    operator.click(page.get_by_role("button", name="Requeue all"))
    page.wait_for_selector("text=of 200")
    while bulk.advance():
        pass
    assert DeadLetter.objects.unscoped().count() == 0
    assert operator.browser.troubles == []


def test_stop_this_tenant_now(operator: Operator, tenant: Tenant) -> None:
    page = operator.asks()
    operator.click("#sw-tenants a:has-text('acme')")
    page.wait_for_selector("text=Stop…")
    operator.click("text=Stop… >> nth=0")
    page.wait_for_selector("#confirm")
    page.fill("#confirm [name=reason]", "it floods the cell")
    operator.click("#confirm button[type=submit]")
    page.wait_for_selector("text=is paused")
    while bulk.advance():
        pass
    left = LiveTask.objects.unscoped().filter(tenant=tenant)
    assert Tenant.objects.get(pk=tenant.pk).paused
    assert not left.exclude(cancel_requested=True).exists(), "what waited is gone, what runs is asked to end"
    assert operator.browser.troubles == []


def test_what_happens_if_i_change_this_weight(operator: Operator, tenant: Tenant) -> None:
    page = operator.asks()
    operator.click("#sw-tenants tr:has-text('globex') a[href*='/plan/']")
    page.fill("#id_weight", "20")
    operator.click(page.get_by_role("button", name="Preview"))
    page.wait_for_selector("#sw-preview table")
    assert "globex" in page.inner_text("#sw-preview")
    assert Plan.objects.get(slug="small").weight == 1, "nothing is saved"
    assert operator.browser.troubles == []
