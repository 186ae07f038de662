"""Submitting random and hostile bodies: each is accepted, or refused with the field named, and then stores nothing."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from django.db import connection

from slackwater_tenants.services import ensure_plan
from tests.support.api import ApiClient, client_of, furnish
from tests.support.fuzzing import Bodies

pytestmark = pytest.mark.django_db
CHECK_EVERY = 250
STORED = """
SELECT (SELECT count(*) FROM slackwater_tasks_task), (SELECT count(*) FROM slackwater_tasks_livetask), (SELECT
    count(*) FROM slackwater_tasks_workflow),
       (SELECT count(*) FROM slackwater_tasks_idempotencykey), (SELECT sum(unfinished) FROM slackwater_tenants_currentcounter)
"""
UNNAMED = {"malformed_body", "unsupported_media_type"}
"""Problems of the body as a whole."""


def stored() -> tuple[int, ...]:
    """What the database holds: tasks, live tasks, workflows, idempotency keys, counted tasks."""
    with connection.cursor() as cur:
        cur.execute(STORED)
        return tuple(int(value or 0) for value in cur.fetchone())


def fuzz(client: ApiClient, seed: int, cases: int) -> Counter[str]:
    """Submit ``cases`` bodies; after each few, the database holds just what was answered with 201."""
    bodies, seen = Bodies(seed), Counter[str]()
    expected = list(stored())
    for n in range(cases):
        path, body, headers = bodies.case()
        answer = client.call("POST", path, raw=body, **headers)
        where = f"seed {seed}, case {n}: POST {path} {body[:500]!r} -> {answer.status} {answer.body}"
        assert answer.status in {200, 201} or 400 <= answer.status < 500, where
        seen[answer.code if answer.status >= 400 else str(answer.status)] += 1
        if answer.status == 201:
            made = len(answer.body["task_ids"])
            one = json.loads(body)
            keyed = "Idempotency-Key" in headers or (isinstance(one, dict) and bool(one.get("idempotency_key")))
            for place, more in enumerate((made, made, path == "/workflows", keyed, made)):
                expected[place] += int(more)
        elif answer.status >= 400:
            check_problem(answer.body, body, where)
        if n % CHECK_EVERY == CHECK_EVERY - 1 or n == cases - 1:
            assert stored() == tuple(expected), f"{where}; one of the last {CHECK_EVERY} cases"
    return seen


def check_problem(problem: Any, body: bytes, where: str) -> None:
    """A refusal says what is wrong, and where."""
    assert {"type", "title", "status", "detail", "code", "request_id"} <= set(problem), where
    assert "Traceback" not in problem["detail"], where
    if problem["code"] in UNNAMED:
        return
    if problem.get("field"):
        assert len(problem["field"]) <= 300, where
        return
    # Only where the body as a whole is wrong is there no field to name.
    whole = not isinstance(json.loads(body), dict | list)
    assert whole or problem["detail"].startswith("The body must be"), where


@pytest.fixture
def acme() -> ApiClient:
    furnish()
    plan = ensure_plan("standard")
    plan.tasks_per_hour = plan.burst = plan.max_waiting = 2_000_000_000
    plan.save()
    return client_of("acme")


def test_hostile_submissions_are_refused_by_field_and_leave_nothing(acme: ApiClient) -> None:
    seen = fuzz(acme, 1, 2_000)
    assert seen["201"] > 200, seen
    assert seen["invalid_input"] > 500, seen


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_thousand_of_them(acme: ApiClient) -> None:
    seen = fuzz(acme, 20_261_121, 50_000)
    assert seen["201"] > 5_000, seen
    assert seen["invalid_input"] > 15_000, seen
    print(dict(seen))  # noqa: T201 (shown with -s)
