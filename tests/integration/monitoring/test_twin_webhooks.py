"""No two webhooks of a tenant tell of the same at the same address: each event would come twice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api import ApiClient
from tests.support.webhooks import ALL

pytestmark = pytest.mark.django_db


def test_what_would_tell_everything_twice_is_refused(acme: ApiClient) -> None:
    asked = {"url": "https://x.org", "events": ["task.failed", "task.late"], "tags": ["eu", "us"]}
    made = acme.post("/webhooks", asked).body
    twin = {**asked, "events": ["task.late", "task.failed"], "tags": ["us", "eu"], "description": "again"}
    for same, field in (
        (twin, "url"),
        ({"channel": "task", "events": ALL}, "channel"),
        ({"channel": "email", "events": ALL}, "channel"),
    ):
        if field == "channel":
            assert acme.post("/webhooks", same).status == 201
        refused = acme.post("/webhooks", same)
        assert (refused.status, refused.body["field"]) == (409, field), refused.body
    others: list[dict[str, Any]] = [
        {"tags": []}, {"events": ["task.late"]}, {"handlers": ["mail.*"]}, {"url": "https://x.gro"},
    ]  # fmt: skip
    for other in others:
        path = f"/webhooks/{acme.post('/webhooks', {**asked, **other}).body['id']}"
        refused = acme.patch(path, {name: asked.get(name, []) for name in other})
        assert (refused.status, refused.body["field"]) == (409, "url"), refused.body
        assert made["id"] in refused.body["detail"]
        assert acme.patch(path, {"enabled": False, "description": "mine"}).status == 200
    assert acme.patch(f"/webhooks/{made['id']}", asked).status == 200, "it is what it was"
