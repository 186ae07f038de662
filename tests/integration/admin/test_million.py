"""Pages over a million tasks: what their statements read is bounded, whatever the page and the search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from slackwater_adminkit import looking
from slackwater_resources.models import Handler
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_api_key
from tests.e2e.test_admin_pages import APPS
from tests.support import million
from tests.support.api import ALL_SCOPES, ApiClient, forget_lookups
from tests.support.console import browser_of
from tests.support.figures import tell
from tests.support.million import Read
from tests.support.pages import Shown, admin_pages, console_pages
from tests.support.showcase import furnish_everything

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]
WIDEST = 64
"""Windows that one search may look through at most: a look that begins with one window ends with far fewer."""
MOST_PAGES, MOST_ROWS, MOST_STATEMENTS = 25_000, 50_000, 30
"""What a page that searches nothing may read: a fraction of 50 ms of database time, on whatever machine."""
LOOK_BACK = {"slackwater_resources_node_change"}
"""They look back for rows as a search does, until their time is used up."""
COUNT_LIVE, MOST_LIVE = ("-do-terminate", "-do-stop", "live.json", "limits"), 250_000
"""They count unfinished tasks: those that an act would end, or what is ready in each line."""
TASK_LIST = "admin:slackwater_tasks_task_changelist"


def looked_at(kind: str, name: str, open_it: Callable[[], Any]) -> Read:
    """Open a page twice: what is read once in a process has been; tells of the second time."""
    open_it()
    forget_lookups()
    with CaptureQueriesContext(connection) as asked:
        open_it()
    found = million.read(asked.captured_queries)
    tell(
        "million", kind=kind, name=name, statements=found.statements, ms=round(found.ms, 1), pages=found.pages,
        rows=found.rows,
    )  # fmt: skip
    return found


def look(page: Client, url: str, **query: str) -> Any:
    """Open a list; none of its statements reads a large table through."""
    answers: list[Any] = []
    words = " ".join(f"{name}={value}" for name, value in query.items())
    kind = "search" if set(query) - {"older", "newer"} else "list"
    found = looked_at(
        kind, f"{url.split('_')[-2]} {words}".strip(), lambda: answers.append(page.get(reverse(url), query))
    )
    assert answers[-1].status_code == 200
    assert not found.through
    assert found.rows <= (WIDEST * looking.WINDOW if kind == "search" else MOST_ROWS), (url, query, found)
    return answers[-1].context["cl"]


@pytest.mark.django_db(transaction=True)
def test_no_list_and_no_search_reads_a_table_through(page: Client, tenant: Tenant) -> None:
    million.fill(tenant)
    first = look(page, TASK_LIST)
    assert (len(first.result_list), first.is_exact, first.result_count > million.TASKS / 2) == (50, False, True)
    deep = look(page, TASK_LIST, older=million.id_of(500_000))
    assert [task.name for task in deep.result_list[:2]] == ["task 499999", "task 499998"]
    assert [task.name for task in look(page, TASK_LIST, newer="start").result_list[-2:]] == ["task 1", "task 0"]
    assert len(look(page, TASK_LIST, q="handler:mail.send7").result_list) == 50
    assert [task.name for task in look(page, TASK_LIST, q="tag:odd").result_list] == ["needle"]
    assert len(look(page, TASK_LIST, state="ready").result_list) == 50
    assert look(page, TASK_LIST, state="running").further == ""
    for words in ("handler:rare.one", "name:needle", "needle", 'error:"no such error"', "node:node-1", "schedule:s7",
                  "workflow:none", "since:2024-01-01 until:2025-01-01"):  # fmt: skip
        look(page, TASK_LIST, q=words)
    # A search that has stopped goes on where it was, until it has seen everything.
    found, shown = [], look(page, TASK_LIST, q="handler:rare.one")
    while shown.further:
        found += shown.result_list
        at = shown.further.partition("older=")[2].partition("&")[0]
        shown = look(page, TASK_LIST, q="handler:rare.one", older=at)
    assert [task.name for task in [*found, *shown.result_list]] == ["needle"]
    for model, narrowed in (
        ("attempt", {"outcome__exact": "2"}), ("taskevent", {"to_state__exact": "5"}), ("workflow", {"q": "none"}),
        ("workflow", {"state": "failed"}),
        ("deadletter", {"tenant__id__exact": str(tenant.pk)}),
    ):  # fmt: skip
        url = f"admin:slackwater_tasks_{model}_changelist"
        look(page, url)
        look(page, url, newer="start")
        look(page, url, **narrowed)


REST = (
    "/tasks", "/tasks?state=ready", "/tasks?handler=mail.send7", "/tasks?tag=odd", "/tasks?schedule=s7",
    "/tasks?sort=submitted_at", "/dead-letters", "/workflows", "/limits", "/usage", "/nodes", "/schedules",
)  # fmt: skip
SOUGHT = ("/tasks?node=node-1", "/tasks?handler=rare.one", "/tasks?name=needle", "/tasks?name_pattern=*eedle",
          "/tasks?error=no+such", "/tasks?state=running", "/tasks?schedule=none")  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_every_page_asks_few_statements_that_read_little(page: Client, root: User, tenant: Tenant) -> None:
    furnish_everything(tenant)
    Handler.objects.create(name="mail.letter")
    ann = browser_of(tenant, "owner", "ann")
    shown = [("page", page, each) for each in admin_pages([name for apps in APPS for name in apps])]
    shown = [each for each in shown if each[2].name != "logout"]
    live = {"live.json": reverse("admin:sw_live"), "charts": reverse("admin:sw_charts") + "?window=7d&by=tenant"}
    shown += [("page", page, Shown(name=name, address=address)) for name, address in live.items()]
    shown += [("console", ann, each) for each in console_pages(ann, tenant)]
    million.fill(tenant)
    million.firings()
    found = {}
    for kind, client, each in shown:
        found[f"{kind} {each.name}"] = looked_at(kind, each.name, lambda c=client, e=each: opened(c, e))  # type: ignore[misc]
    acme = ApiClient(tenant, *create_api_key(tenant, "test", ALL_SCOPES))
    deep = acme.get("/tasks?limit=100").body["next_cursor"]
    for path in (*REST, f"/tasks?cursor={deep}"):
        found[f"REST {path}"] = looked_at("REST", path, lambda p=path: answered(acme, p))  # type: ignore[misc]
    for path in SOUGHT:
        looked_at("REST search", path, lambda p=path: answered(acme, p))  # type: ignore[misc]
        found[f"search {path}"] = looked_at(
            "REST search, within_ms=60", path, lambda p=path: answered(acme, f"{p}&within_ms=60")  # type: ignore[misc]
        )  # fmt: skip
        page_of = Shown(name=path, address=reverse("console:tasks", args=[tenant.slug]) + path.removeprefix("/tasks"))
        if "?handler=" not in path and "?name=" not in path:
            found[f"search console {path}"] = looked_at("console search", path, lambda e=page_of: opened(ann, e))  # type: ignore[misc]
    too_much = {name: each for name, each in found.items() if not _little(name, each)}
    assert not too_much, "\n".join(map(str, too_much.items()))


def _little(name: str, read: Read) -> bool:
    looks_back = name.partition(" ")[2] in LOOK_BACK or name.startswith("search ")
    rows = WIDEST * looking.WINDOW if looks_back else MOST_LIVE if name.endswith(COUNT_LIVE) else MOST_ROWS
    return not read.through and read.statements <= MOST_STATEMENTS and read.rows <= rows and (
        looks_back or read.pages <= MOST_PAGES
    )  # fmt: skip


def answered(client: ApiClient, path: str) -> None:
    """Ask the API."""
    answer = client.get(path)
    assert answer.status == 200, answer.body


def opened(client: Client, page: Shown) -> None:
    """Open a page as it is opened."""
    client = Client() if page.anonymous else client
    answer = client.get(page.address) if page.posted is None else client.post(page.address, dict(page.posted))
    assert answer.status_code in (200, 302, 404), page.name
