"""The console: who comes in and sees what; tasks are listed, found, shown and followed."""

from __future__ import annotations

import html
import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from scheduler_ext.core.states import Outcome
from slackwater_adminkit import looking
from slackwater_monitoring.models import Login
from slackwater_tasks.models import Task
from slackwater_tasks.submission import service
from slackwater_tenants.models import Membership, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.admin import submit
from tests.support.api import HANDLER
from tests.support.console import PASSWORD, browser_of, member, told
from tests.support.hand_worker import HandWorker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]


def test_a_member_comes_in_by_password_and_nobody_else_sees_the_tenant(tenant: Tenant) -> None:
    ann = member(tenant, "viewer", "ann")
    ann.set_password(PASSWORD)
    ann.save()
    page = Client()
    asked = page.get("/console/acme/tasks/")
    assert asked["Location"] == "/console/login/?next=/console/acme/tasks/"
    form = {"username": "ann", "password": "wrong", "next": "/console/acme/tasks/"}
    assert "correct username" in told(page.post("/console/login/", form))
    assert page.post("/console/login/", {**form, "password": PASSWORD})["Location"] == "/console/acme/tasks/"
    assert list(Login.objects.order_by("id").values_list("outcome", flat=True)) == ["failed", "succeeded"]
    shown = page.get("/console/acme/tasks/")
    assert shown.status_code == 200
    assert "ann, viewer" in told(shown)
    pages = re.findall(r'href="/console/acme/([a-z-]+)/"', told(shown))
    own = ["tasks", "workflows", "schedules", "dead-letters", "usage", "limits", "webhooks", "members"]
    assert pages[1:] == [*own, "output"], "the navigation, and what the list of tasks leads to"
    assert "no-store" in shown["Cache-Control"]
    policy = shown["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "form-action 'self'" in policy
    assert "<script>" not in told(shown)
    create_tenant("other", "Other")
    for slug in ("other", "nowhere"):
        assert page.get(f"/console/{slug}/tasks/").status_code == 404
    assert page.get("/console/")["Location"] == "/console/acme/tasks/"
    assert page.post("/console/logout/")["Location"] == "/console/login/"
    assert page.get("/console/acme/tasks/").status_code == 302


def test_too_many_failures_are_refused_whatever_the_password(tenant: Tenant) -> None:
    ann = member(tenant, "viewer", "ann")
    ann.set_password(PASSWORD)
    ann.save()
    for _ in range(5):
        Client().post("/console/login/", {"username": "ann", "password": "wrong"})
    assert Client().post("/console/login/", {"username": "ann", "password": PASSWORD}).status_code == 200
    assert Login.objects.order_by("-id").values_list("outcome", flat=True).first() == "refused"


def test_staff_who_are_no_members_see_nothing(tenant: Tenant, page: Client) -> None:
    assert page.get("/console/acme/tasks/").status_code == 404
    assert page.get("/console/").status_code == 403


def test_somebody_of_two_tenants_changes_between_them(tenant: Tenant) -> None:
    other = create_tenant("other", "Other")
    page = browser_of(tenant, "owner", "ann")
    Membership.objects.create(tenant=other, user=User.objects.get(username="ann"), role="viewer")
    assert "ann, admin" in told(page.get("/console/acme/tasks/"))
    assert 'href="/console/other/tasks/"' in told(page.get("/console/acme/tasks/"))
    assert "ann, viewer" in told(page.get("/console/other/tasks/"))
    Membership.objects.filter(tenant=other).delete()
    assert page.get("/console/other/tasks/").status_code == 404


def test_tasks_are_found_shown_and_followed(tenant: Tenant) -> None:
    page, worker = browser_of(tenant, "viewer"), HandWorker()
    waits = submit(tenant, name="waits", kwargs={"password": "hush-hush"})
    fails = submit(tenant, name="fails", total_attempts=1)
    begun = worker.start(fails)
    worker.end(
        begun,
        outcome=Outcome.FAILED,
        error="Traceback:\n" + "  a frame\n" * 20 + "ValueError: <b>no</b>\n",
        logs="hello\n",
    )
    found = told(page.get("/console/acme/tasks/"))
    assert "waits" in found
    assert "fails" in found
    found = told(page.get("/console/acme/tasks/?state=failed&handler_pattern=demo.*"))
    assert "fails" in found
    assert ">waits<" not in found
    assert "submitted_after: " in told(page.get("/console/acme/tasks/?submitted_after=yesterday"))
    shown = told(page.get(f"/console/acme/tasks/{waits}/"))
    assert "Why it waits" in shown
    assert HANDLER in shown
    assert "hush-hush" not in shown, "a viewer is not told what looks like a secret"
    assert page.get(f"/console/acme/tasks/{waits}/mark.json").json()["final"] is False
    shown = told(page.get(f"/console/acme/tasks/{fails}/"))
    assert "<summary>ValueError: &lt;b&gt;no&lt;/b&gt;</summary>" in shown
    assert shown.count("  a frame\n" * 20) == 2, "as the task's error, and folded as the attempt's"
    assert page.get(f"/console/acme/tasks/{fails}/mark.json").json()["final"] is True
    lines = page.get(f"/console/acme/tasks/{fails}/output.json").json()
    assert [line["text"] for line in lines["lines"]] == ["hello"]
    assert lines["ended"] is True
    again = page.get(f"/console/acme/tasks/{fails}/output.json?place={lines['place']}").json()
    assert (again["lines"], again["ended"]) == ([], True)
    assert page.get(f"/console/acme/tasks/{fails}/output.json?place=x").status_code == 422


def test_what_tasks_wrote_is_searched_over_a_workflow_and_a_handler(tenant: Tenant) -> None:
    page, worker = browser_of(tenant, "viewer"), HandWorker()
    flow = service.submit_workflow(tenant, {"name": "night", "tasks": [{"name": "first", "handler": HANDLER}]})
    for who in (tenant, create_tenant("other", "Other")):
        worker.end(worker.start(submit(who, name=f"alone of {who.slug}")), logs=f"a line of {who.slug}\n")
    worker.end(worker.start(flow.task_ids[0]), logs="begun\n<i>timed out</i>\n")
    shown = told(page.get(f"/console/acme/workflows/{flow.workflow_id}/"))
    assert f'href="/console/acme/output/?workflow_id={flow.workflow_id}"' in shown
    assert 'href="/console/acme/workflows/?name_pattern=night"' in shown
    shown = told(page.get(f"/console/acme/output/?workflow_id={flow.workflow_id}"))
    assert ">first</a>" in shown
    assert "begun" in shown
    assert "&lt;i&gt;timed out&lt;/i&gt;" in shown
    assert "a line of acme" not in shown
    shown = told(page.get(f"/console/acme/output/?handler={HANDLER}&text=LINE"))
    assert "a line of acme" in shown
    assert "begun" not in shown
    assert "a line of other" not in shown
    assert "No line was found" in told(page.get("/console/acme/output/?text=nothing+like+it"))
    assert "workflow_id" in told(page.get("/console/acme/output/?workflow_id=x"))
    assert 'href="/console/acme/output/"' in told(page.get("/console/acme/tasks/"))


def test_tasks_are_found_by_node_error_and_schedule(tenant: Tenant) -> None:
    page, worker = browser_of(tenant, "viewer"), HandWorker("node-7")
    waits, fails = submit(tenant, name="waits"), submit(tenant, name="fails", total_attempts=1)
    worker.end(worker.start(fails), outcome=Outcome.FAILED, error="OSError: it Timed out")
    Task._plain.filter(pk=waits).update(submitted_by="schedule:nightly")
    for query, found, not_found in (
        ("node=node-7", "fails", "waits"), ("error=timed+out", "fails", "waits"), ("schedule=nightly", "waits", "fails"),
    ):  # fmt: skip
        shown = told(page.get(f"/console/acme/tasks/?{query}"))
        assert f">{found}<" in shown, query
        assert f">{not_found}<" not in shown, query
    assert ">fails<" not in told(page.get("/console/acme/tasks/?node=node-8"))
    for name in ("node", "error", "schedule"):
        assert f'name="{name}"' in shown


def test_a_search_that_no_index_answers_says_that_it_goes_on(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    page = browser_of(tenant, "viewer")
    for n in range(5):
        submit(tenant, name=f"t{n}")
    monkeypatch.setattr(looking, "CHEAP", -1)
    monkeypatch.setattr(looking, "WINDOW", 2)
    assert ">t0<" in told(page.get("/console/acme/tasks/?name_pattern=t0"))
    monkeypatch.setattr("slackwater_api.http.sorting.asked_time", lambda query: -1.0)
    shown, seen = told(page.get("/console/acme/tasks/?name_pattern=t0")), 1
    while "Look further" in shown:
        assert "have not been looked through yet" in shown
        assert ">t0<" not in shown
        (further,) = re.findall(r'href="([^"]+)">Look further', shown)
        shown, seen = told(page.get(f"/console/acme/tasks/{html.unescape(further)}")), seen + 1
    assert ">t0<" in shown
    assert seen == 3


def test_a_parameter_that_a_page_does_not_know_is_named_and_not_passed_over(tenant: Tenant) -> None:
    page = browser_of(tenant, "owner")
    submit(tenant, name="waits")
    for path in ("tasks", "workflows", "schedules", "dead-letters", "webhooks", "keys", "members", "usage"):
        shown = told(page.get(f"/console/acme/{path}/?hander=mail"))
        assert "hander: there is no such filter; known are " in shown, path
        assert ">waits<" not in shown
    assert "state: is given more than once" in told(page.get("/console/acme/tasks/?state=failed&state=ready"))
    assert "sort: there is no such filter" in told(page.get("/console/acme/tasks/?sort=name"))
    assert page.get("/console/acme/schedules/new/?hander=mail").status_code == 422
    assert ">waits<" in told(page.get("/console/acme/tasks/?state=&tag="))


def test_a_member_gets_its_first_password_by_a_link(tenant: Tenant) -> None:
    page, bobs = browser_of(tenant, "owner", "ann"), Client()
    page.post("/console/acme/members/", {"username": "bob", "role": "operator"})
    bob = Membership.objects.get(user__username="bob")
    at = f"/console/acme/members/{bob.public_id}/"
    assert "A link to choose a password" in told(page.get(at))
    link = re.search(r"http://testserver(/console/password/[^<]+)<", told(page.post(f"{at}invite/")))
    assert link is not None
    there = bobs.get(link[1])["Location"]
    assert "too common" in told(bobs.post(there, {"new_password1": "password1", "new_password2": "password1"}))
    assert bobs.post(there, {"new_password1": PASSWORD, "new_password2": PASSWORD})["Location"] == "/console/"
    shown = told(bobs.get("/console/acme/tasks/"))
    assert "bob, operator" in shown
    assert "/console/password/" in shown
    assert "is too old" in told(Client().get(link[1])), "it holds once"
    refused = page.post(f"{at}invite/", follow=True)
    assert "can log in already" in told(refused)
    changed = {"old_password": PASSWORD, "new_password1": f"{PASSWORD}-2", "new_password2": f"{PASSWORD}-2"}
    assert bobs.post("/console/password/", changed)["Location"] == "/console/"
    both = browser_of(tenant, "viewer", "carl")
    carl = Membership.objects.get(user__username="carl")
    Membership.objects.create(tenant=create_tenant("other", "Other"), user=carl.user, role="viewer")
    refused = page.post(f"/console/acme/members/{carl.public_id}/invite/", follow=True)
    assert "belongs to others too" in told(refused), "another tenant's way to somebody is not this one's to give"
    assert both.get("/console/other/tasks/").status_code == 200


def test_who_may_not_is_told_of_a_role_and_not_of_a_key(tenant: Tenant) -> None:
    answer = browser_of(tenant, "viewer").get("/console/acme/keys/")
    assert answer.status_code == 403
    assert "Your role does not allow it." in told(answer)
    assert "This key" not in told(answer)
