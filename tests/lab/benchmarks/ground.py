"""What a measurement inside the platform stands on: an empty database with one plan and its tenants."""

from __future__ import annotations

from django.core.management import call_command
from django.db import connection

from slackwater_tenants.models import Plan, Tenant
from slackwater_tenants.services import create_tenant

LEDGER = ", ".join(
    f"slackwater_tasks_{name}"
    for name in ("task", "livetask", "attempt", "dependency", "taskevent", "deadletter", "workflow")
)


def prepare() -> None:
    """Make the tables anew, and a plan without limits worth naming."""
    with connection.cursor() as cur:
        cur.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    call_command("migrate", verbosity=0)
    Plan.objects.create(
        slug="bench", name="Bench", tasks_per_hour=2_000_000_000, burst=2_000_000, max_waiting=50_000_000,
        max_in_flight=1_000_000, max_dag_tasks=1_000_000, max_dag_edges=1_000_000,
    )  # fmt: skip


def tenants(count: int) -> list[Tenant]:
    """That many new tenants on the plan."""
    return [create_tenant(f"bench{n}", f"Bench {n}", "bench") for n in range(count)]


def empty() -> None:
    """Forget every task."""
    with connection.cursor() as cur:
        cur.execute(f"TRUNCATE {LEDGER}, slackwater_tenants_endcounter")
        cur.execute(
            "UPDATE slackwater_tenants_tenantcounter"
            " SET unfinished = 0, urgent_unfinished = 0, ended = 0, urgent_ended = 0"
        )
