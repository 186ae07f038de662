"""What a client finds that knows only the address: links, pages, itself, and problems where there is nothing."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from tests.support.api import ApiClient, client_of

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
