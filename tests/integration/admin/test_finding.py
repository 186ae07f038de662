"""Long lists: pages by key, searches that look back in windows, and searches kept under a name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from scheduler_ext.core.states import TaskState
from slackwater_adminkit import looking
from slackwater_adminkit.big import BigTableAdmin
from slackwater_dashboard.models import SavedView
from slackwater_tasks.admin.filters import first_id
from slackwater_tasks.models import Task
from slackwater_tenants.models import Tenant
from tests.support.admin import said, staff, submit
from tests.support.planner import learn

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]
TASKS = "admin:slackwater_tasks_task_changelist"


def shown(page: Client, query: str | dict[str, str] = "", url: str = TASKS) -> Any:
    """The list as its template has it."""
    address = reverse(url)
    answer = page.get(address + query) if isinstance(query, str) else page.get(address, query)
    assert answer.status_code == 200
    return answer.context["cl"]


def keys(found: Any) -> list[Any]:
    return [row.pk for row in found.result_list]


def test_pages_lead_to_each_other_by_the_key(page: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BigTableAdmin, "list_per_page", 3)
    made = [submit(tenant, name=f"t{n}") for n in range(8)][::-1]
    learn("slackwater_tasks_task")  # what an earlier test made the planner believe is gone
    first = shown(page)
    assert (keys(first), first.newer, first.result_count, first.is_exact) == (made[:3], "", 8, False)
    second = shown(page, first.older)
    third = shown(page, second.older)
    assert (keys(second), keys(third), third.older) == (made[3:6], made[6:], "")
    assert keys(shown(page, third.newer)) == made[3:6]
    assert keys(shown(page, second.newest)) == made[:3]
    last = shown(page, first.oldest)
    assert (keys(last), last.older) == (made[5:], "")
    assert keys(shown(page, last.newer)) == made[2:5]
    assert keys(shown(page, {"older": "nonsense"})) == made[:3]
    # The place is no part of the search: a new search begins at its start, and what is done to all is done to all.
    assert "older" not in shown(page, f"{first.older}&q=t").get_query_string()
    # Windows find the same, and say how far they looked where their time is used up.
    monkeypatch.setattr(looking, "CHEAP", -1)
    monkeypatch.setattr(looking, "WINDOW", 2)
    monkeypatch.setattr(looking, "BUDGET_S", 60)
    one = shown(page, {"q": "name:t0"})
    assert (keys(one), one.further) == ([made[7]], "")
    monkeypatch.setattr(looking, "BUDGET_S", -1)
    none = shown(page, {"q": "name:t0"})
    assert (keys(none), none.searched_to != "") == ([], True)
    seen = []
    while none.further:
        none = shown(page, none.further)
        seen += keys(none)
    assert seen == [made[7]]


def test_by_time(page: Client, tenant: Tenant) -> None:
    now = submit(tenant)
    before = Task.objects.unscoped().get(pk=now)
    before.pk = first_id(int((timezone.now() - timedelta(hours=3)).timestamp() * 1000))
    before.state, before.finished_at = TaskState.SUCCEEDED, timezone.now()
    before.save(force_insert=True)
    assert keys(shown(page, {"q": "since:2h"})) == [now]
    assert keys(shown(page, {"q": "since:4h until:2h"})) == [before.pk]
    assert keys(shown(page, {"q": "until:2030-01-31T09:00+01:00"})) == [now, before.pk]
    answer = page.get(reverse(TASKS), {"q": "since:yore"})
    assert "since: cannot read 'yore'" in said(answer)
    assert not answer.context["cl"].result_list


def test_a_search_is_kept_under_a_name(page: Client, tenant: Tenant) -> None:
    wanted, _ = submit(tenant, name="cafe"), submit(tenant, name="other")
    views, task_list = reverse("admin:sw_views"), reverse(TASKS)
    kept = {"page": "slackwater_tasks.task", "name": " the  cafe ", "query": "q=name:cafe&older=1"}
    answer = page.post(views, kept)
    assert answer["Location"] == f"{task_list}?q=name%3Acafe"
    view = SavedView.objects.get()
    assert (view.name, view.query, view.owner) == ("the cafe", "q=name%3Acafe", "root")
    link = reverse("admin:sw_view", args=[view.pk])
    assert link in page.get(task_list).text
    page.post(views, {**kept, "query": "q=cafe"})
    assert SavedView.objects.get().query == "q=cafe"
    assert "name: must be" in said(page.post(views, {**kept, "name": " "}))
    assert "filter the list first" in said(page.post(views, {**kept, "query": "p=3"}))
    assert page.get(views).status_code == 405
    # Its address leads others there too, as far as they may see the list; it is in the owner's lists alone.
    reader = staff("slackwater_tasks.view_task")
    assert reader.get(link, follow=True).context["cl"].result_list[0].pk == wanted
    assert link not in reader.get(task_list).text
    assert staff().get(link).status_code == 403
    assert reader.post(views, {**kept, "page": "auth.user"}).status_code == 403
    assert reader.post(views, {**kept, "page": "no.such"}).status_code == 404
    reader.post(views, {**kept, "remove": str(view.pk)})
    assert SavedView.objects.exists()
    for number in ("²", "one", "-1", ""):  # "²" is a digit, and no number
        assert page.post(views, {**kept, "remove": number}).status_code == 404
    page.post(views, {**kept, "remove": str(view.pk)})
    assert not SavedView.objects.exists()
    assert User.objects.filter(username="root").exists()
