"""The wall around the console: every address with another tenant's objects, with too small a role, and without a login."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from slackwater_console.acts import ACTS
from slackwater_console.urls import urlpatterns
from tests.integration.api.test_auth import Objects, fingerprint, own_something
from tests.support.api import HANDLER, client_of
from tests.support.console import browser_of, told

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]
ROUTES = {
    str(pattern.name): sorted(set(pattern.pattern.converters) - {"slug"})
    for pattern in urlpatterns
    if "slug" in pattern.pattern.converters
}
"""Every address of a tenant, with the ids that it takes."""
FORMS = {"keys", "members", "member", "webhooks", "submit", "schedule_new", "schedule_edit", "rerun"}
"""Pages whose forms change something."""
POSTED = {*ACTS, "invite", "firings"}
"""What only a button leads to."""
NOT_FOR_VIEWERS = {"keys", "submit", "schedule_new", "schedule_edit", "rerun"}
FOR_OPERATORS = {"submit", "schedule_new", "schedule_edit", "rerun"}
"""Those of the forms that an operator may use."""
CHANGED = {
    "role": "viewer",
    "name": "x",
    "scopes": ["read"],
    "username": "x",
    "url": "https://x.example",
    "events": "*",
}


def address(name: str, slug: str, objects: Objects) -> str:
    """An address with some tenant's ids in it."""
    ids = {each: objects.names[each] for each in ROUTES[name]}
    return reverse(f"console:{name}", kwargs={"slug": slug, **ids})


def test_another_tenants_pages_and_objects_do_not_exist() -> None:
    acme, other = client_of("acme"), client_of("other")
    theirs = own_something(other)
    page, before = browser_of(acme.tenant, "owner"), fingerprint()
    staff = Client()
    assert set(FORMS) | set(ACTS) <= set(ROUTES)
    for name, ids in ROUTES.items():
        methods: list[Any] = [*([] if name in POSTED else [page.get]), *([page.post] if name in POSTED | FORMS else [])]
        for method in methods:
            assert method(address(name, "other", theirs), CHANGED).status_code == 404, name
            if ids:
                answer = method(address(name, "acme", theirs), CHANGED)
                assert answer.status_code == 404, name
                assert "secret" not in told(answer).replace(theirs.names.get("handler_name", ""), ""), name
        assert staff.post(address(name, "acme", theirs)).status_code == 302, name
    assert fingerprint() == before
    for name, ids in ROUTES.items():
        if not ids and name not in POSTED:
            shown = told(page.get(address(name, "acme", theirs)))
            assert "secret" not in shown, name
            assert theirs.task_id not in shown, name
    # An act on many: their ids among one's own choose nothing.
    for name in ("cancel_tasks", "retry_tasks", "requeue_chosen"):
        page.post(address(name, "acme", theirs), {"id": [theirs.task_id]})
    assert fingerprint() == before


def test_a_viewer_looks_an_operator_works_and_neither_manages() -> None:
    acme = client_of("acme")
    own = replace(own_something(acme), handler_name=HANDLER)
    page, before = browser_of(acme.tenant, "viewer"), fingerprint()
    for name in ROUTES:
        at = address(name, "acme", own)
        if name in POSTED:
            assert page.get(at).status_code == 405, name
        else:
            assert page.get(at).status_code == (403 if name in NOT_FOR_VIEWERS else 200), name
        if name in POSTED | FORMS:
            data = CHANGED if name in FORMS else {"id": [own.task_id]}
            assert page.post(at, data).status_code == 403, name
    assert fingerprint() == before
    for name in ("tasks", "dead_letters", "schedules", "members", "webhooks"):
        assert "formaction" not in told(page.get(address(name, "acme", own))), name
    operator = browser_of(acme.tenant, "operator")
    before = fingerprint()
    for name in ROUTES:
        if name in FORMS - FOR_OPERATORS | {"invite"} or (name in ACTS and ACTS[name].scope == "manage"):
            assert operator.post(address(name, "acme", own), CHANGED).status_code == 403, name
    operator.handler.enforce_csrf_checks = True
    assert operator.post(address("cancel_task", "acme", own)).status_code == 403, "a form without its token"
    assert fingerprint() == before
