"""What a client finds that knows only the address: links, pages, itself, and problems where there is nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client, RequestFactory
from django.urls import path
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import spectacular_settings
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import NotFound
from slackwater_api.http.endpoint import READ, ApiView
from slackwater_api.http.openapi import describe
from slackwater_api.http.operation import Deprecated
from slackwater_api.http.reference import document
from slackwater_api.v1.shapes.organization import WhoAmI
from slackwater_tenants.models import StreamTicket
from tests.support.api import HANDLER, ApiClient, client_of

pytestmark = pytest.mark.django_db


def test_the_front_doors_lead_to_what_there_is_and_tell_nothing_of_this_place() -> None:
    site = Client()
    for door in ("/", "/api/", "/api/v1", "/api/v1/"):
        answer = site.get(door)
        assert (answer.status_code, answer.json()["version"]) == (200, "v1"), door
        assert 'rel="service-desc"' in answer.headers["Link"]
    links = site.get("/").json()["links"]
    public = [site.get(links[name]).status_code for name in ("documentation", "errors", "schema", "health")]
    assert public == [200] * 4
    assert site.get(links["tasks"]).status_code == 401
    assert site.post("/").status_code == 405


@pytest.mark.parametrize("path", ["/nowhere", "/api/nowhere", "/api/v2/tasks", "/api/v1/nowhere", "/healthz/deep"])
def test_where_there_is_nothing_is_a_problem(path: str) -> None:
    answer = Client().get(path)
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")
    assert json.loads(answer.content)["code"] == "not_found"
    page = Client().get(path, headers={"Accept": "text/html,*/*"})
    assert ("html" in page.headers["Content-Type"]) == (not path.startswith("/api/"))


def test_every_key_may_ask_who_it_is(acme: ApiClient) -> None:
    member = acme.post("/members", {"username": "ann", "role": "viewer"}).body["id"]
    made = acme.post("/keys", {"name": "hers", "member_id": member, "scopes": ["read"]}).body
    hers = ApiClient(acme.tenant, acme.key, made["key"]).get("/whoami").body
    assert (hers["key"]["id"], hers["scopes"]) == (made["id"], ["read"])
    assert hers["member"] == {"id": member, "username": "ann", "role": "viewer"}
    assert hers["organization"] == {"slug": "acme", "name": "Acme", "plan": "standard"}
    only = client_of("other", ("cancel",)).get("/whoami")
    assert (only.status, only.body["scopes"], only.body["member"]) == (200, ["cancel"], None)


def test_pages_name_the_next_and_the_first(acme: ApiClient) -> None:
    wanted = {acme.task(name="a") for _ in range(3)}
    found, path = [], "/tasks?name=a&limit=2"
    while path:
        answer = acme.get(path)
        found += [item["id"] for item in answer.body["items"]]
        links = {part.split('rel="')[1][:-1]: part[1 : part.index(">")]
                 for part in filter(None, answer.headers.get("Link", "").split(", "))}  # fmt: skip
        assert ("first" in links) == ("cursor" in path)
        path = f"/tasks{links['next']}" if "next" in links else ""
    assert (set(found), len(found)) == (wanted, 3)
    assert links["first"] == "?name=a&limit=2"


def test_a_page_may_read_what_its_key_is_answered_where_the_key_says_so(acme: ApiClient) -> None:
    page, asks = "https://app.example.org", {"Access-Control-Request-Method": "POST"}
    site = Client()
    before = site.options("/api/v1/tasks", headers={"Origin": page, **asks})
    assert before.status_code in {401, 405}
    assert "Access-Control-Allow-Origin" not in before.headers
    made = acme.post("/keys", {"name": "page", "scopes": ["read"], "origins": [page]}).body
    assert made["origins"] == [page]
    asked = site.options("/api/v1/tasks", headers={"Origin": page, **asks})
    assert (asked.status_code, asked.headers["Access-Control-Allow-Origin"]) == (204, page)
    operations = [one for path in document()["paths"].values() for one in path.values() if isinstance(one, dict)]
    sent = {p["name"] for one in operations for p in one.get("parameters", ()) if p["in"] == "header"}
    assert {"Authorization", *sent} <= set(asked.headers["Access-Control-Allow-Headers"].split(", "))
    hers = ApiClient(acme.tenant, acme.key, made["key"])
    read, elsewhere = hers.get("/tasks", Origin=page), hers.get("/tasks", Origin="https://evil.example")
    told = {name for one in operations for answer in one["responses"].values() for name in answer.get("headers", ())}
    tus = {"Upload-Offset", "Upload-Length", "Tus-Resumable", "Content-Range", "Accept-Ranges"}
    assert told | tus <= set(read.headers["Access-Control-Expose-Headers"].split(", "))
    assert read.headers["Access-Control-Allow-Origin"] == page
    assert "Origin" in read.headers["Vary"]
    assert "Origin" in elsewhere.headers["Vary"]
    assert "Access-Control-Allow-Origin" not in elsewhere.headers
    assert "Access-Control-Allow-Origin" not in acme.get("/tasks", Origin=page).headers
    assert hers.post("/tasks", {}, Origin=page).headers["Access-Control-Allow-Origin"] == page  # its 403 too
    for wrong in ("*", "https://app.example.org/", "null", "app.example.org", 1):
        answer = acme.post("/keys", {"name": "x", "scopes": ["read"], "origins": [wrong]})
        assert (answer.status, answer.body["field"]) == (422, "origins[0]")


def test_what_is_to_go_says_so_in_its_answers_and_in_the_document(
    acme: ApiClient, rf: RequestFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = datetime(2026, 7, 1, tzinfo=UTC)
    going = Deprecated(since=since, sunset=since + timedelta(days=180), words="/api/docs/")

    class Old(ApiView):
        @describe("get_old", "Get the old", READ, {200: WhoAmI}, deprecated=going)
        def get(self, request: Request) -> Response:
            """One."""
            if "not" in request.headers:
                raise NotFound("no more")
            return Response({})

    for headers in ({}, {"not": "here"}):
        found = Old.as_view()(rf.get("/", headers={"authorization": f"Bearer {acme.text}", **headers}))
        assert found.status_code == (404 if headers else 200)
        told = [found.headers[name] for name in ("Deprecation", "Sunset", "Link")]
        assert told == ["@1782864000", "Mon, 28 Dec 2026 00:00:00 GMT", '</api/docs/>; rel="deprecation"']
    monkeypatch.setattr(spectacular_settings, "POSTPROCESSING_HOOKS", [])
    shown = SchemaGenerator(patterns=[path("api/v1/old", Old.as_view())]).get_schema(public=True)
    assert shown["paths"]["/api/v1/old"]["get"]["deprecated"] is True
    assert "Deprecation" not in acme.get("/whoami").headers
    with pytest.raises(ValueError, match="180 days"):
        Deprecated(since=since, sunset=since + timedelta(days=179), words="/")


def test_a_ticket_opens_its_stream_once_and_soon(acme: ApiClient) -> None:
    task_id, site = acme.task(), Client()
    made = acme.post("/stream-tickets", {"task_id": task_id, "expires_in_s": 30})
    ticket, url = made.body["ticket"], made.body["url"]
    assert (made.status, url) == (201, f"/api/v1/tasks/{task_id}/events?ticket={ticket}")
    assert made.headers["Location"] == url.partition("?")[0]
    for other in (f"/api/v1/tasks/{task_id}", "/api/v1/events", f"/api/v1/tasks/{task_id}/logs/events"):
        assert site.get(other, {"ticket": ticket}).status_code in {401, 422}, other
    opened = site.get(url)
    assert (opened.status_code, task_id in opened.content.decode()) == (200, True)
    assert site.get(url).status_code == 401
    late = acme.post("/stream-tickets", {"task_id": task_id, "follow": "logs"}).body["url"]
    StreamTicket.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert site.get(late).status_code == 401
    for body in (
        {"task_id": "x"},
        {"follow": "logs"},
        {"task_id": task_id, "workflow_id": task_id},
        {"expires_in_s": 301},
    ):
        assert acme.post("/stream-tickets", body).status == 422
    assert client_of("other", ("submit",)).post("/stream-tickets", {}).status == 403


def test_who_may_only_read_sees_no_secret_in_arguments(acme: ApiClient) -> None:
    path = f"/tasks/{acme.task(kwargs={'password': 'hush', 'to': 'ann'})}"
    viewer = ApiClient(acme.tenant, acme.key, acme.post("/keys", {"name": "v", "scopes": ["read"]}).body["key"])
    assert acme.get(path).body["kwargs"] == {"password": "hush", "to": "ann"}
    shown = viewer.get(path)
    assert shown.body["kwargs"] == {"password": "***", "to": "ann"}
    assert viewer.get(path, If_None_Match=shown.headers["ETag"]).status == 304


def test_who_may_only_read_learns_no_secret_by_guessing(acme: ApiClient) -> None:
    """What is shown as *** does not narrow a list either, by the right value or a wrong one."""
    made = acme.task(metadata={"token": "hush", "team": "blue", "note": "password=hush"})
    task = {"name": "a", "handler": HANDLER}
    acme.post("/workflows", {"name": "w", "metadata": {"token": "hush"}, "tasks": [task]})
    key = acme.post("/keys", {"name": "v", "scopes": ["read", "cancel"]}).body["key"]
    viewer = ApiClient(acme.tenant, acme.key, key)
    assert [row["id"] for row in acme.get("/tasks?metadata[token]=hush").body["items"]] == [made]
    for where in ("/tasks", "/workflows"):
        for guess in ("hush", "other"):
            refused = viewer.get(f"{where}?metadata[token]={guess}")
            assert (refused.status, refused.body["field"]) == (403, "metadata[token]"), (where, refused.body)
    assert viewer.get("/tasks?metadata[note]=password%3Dhush").status == 403
    assert [row["id"] for row in viewer.get("/tasks?metadata[team]=blue").body["items"]] == [made]
    for name, value in (("metadata", {"token": "hush"}), ("metadata[token]", "hush")):
        refused = viewer.post("/tasks/cancel", {"filter": {name: value}, "dry_run": True})
        assert (refused.status, refused.body["field"]) == (403, "filter.metadata[token]"), refused.body
    assert acme.post("/tasks/cancel", {"filter": {"metadata": {"token": "hush"}}, "dry_run": True}).body["matched"] == 1
