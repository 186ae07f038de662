"""Health pages: whether this process is alive, and whether it can take submissions."""

from __future__ import annotations

import time
from typing import Any

from django.db import Error, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from scheduler_ext.dispatch import redis_client
from slackwater_conf import conf

REDIS_TIMEOUT_S = 0.5
LEADERS = "SELECT cell, expires_at > clock_timestamp() FROM slackwater_tasks_leader ORDER BY cell"
WORKERS = """
SELECT cell, count(*) FILTER (WHERE state = 'active'), count(*) FILTER (WHERE state = 'starting')
FROM slackwater_resources_node WHERE state IN ('starting', 'active') AND lease_expires_at > clock_timestamp()
GROUP BY cell ORDER BY cell
"""


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer that this process is alive; nothing else is asked, so a lost database does not restart it."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Say whether this process can take submissions: 503 without its database.

    Without Redis, or while no dispatcher leads or no worker is there, submissions are still accepted and kept, so these
    are told (workers: how many by cell, and how many are starting) but do not take the process out of service.
    """
    database, leaders, workers, starting = _database()
    checks: dict[str, Any] = {
        "database": database, "redis": _redis(), "dispatchers": leaders, "workers": workers,
        "starting": starting,
    }  # fmt: skip
    ready = database["ok"]
    body = {"status": "ready" if ready else "not ready", "checks": checks}
    return JsonResponse(body, status=200 if ready else 503, headers={"Cache-Control": "no-store"})


def _database() -> tuple[dict[str, Any], dict[str, bool], dict[str, int], dict[str, int]]:
    began = time.monotonic()
    try:
        with connection.cursor() as cursor:
            # Its tables too: a database that is not migrated is not ready.
            cursor.execute(LEADERS)
            leaders = {cell: bool(leads) for cell, leads in cursor.fetchall()}
            cursor.execute(WORKERS)
            found = cursor.fetchall()
            workers = {cell: active for cell, active, _ in found if active}
            starting = {cell: count for cell, _, count in found if count}
    except Error as error:
        return {"ok": False, "error": type(error).__name__}, {}, {}, {}
    return {"ok": True, "ms": round((time.monotonic() - began) * 1000, 1)}, leaders, workers, starting


def _redis() -> dict[str, Any]:
    began = time.monotonic()
    if error := redis_error(REDIS_TIMEOUT_S):
        return {"ok": False, "error": error}
    return {"ok": True, "ms": round((time.monotonic() - began) * 1000, 1)}


def redis_error(timeout_s: float) -> str:
    """The kind of error by which Redis does not answer; empty where it does."""
    try:
        with redis_client.connect(conf().redis_url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s) as one:
            one.ping()
    except (redis_client.RedisError, OSError) as error:
        return type(error).__name__
    return ""
