"""Many schedules live, some due at the same moment: how late they fire, edits while they do included."""

from __future__ import annotations

import random
import threading
import time
from datetime import timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from slackwater_schedules import services
from slackwater_schedules.firing import fire_due, seconds_to_next
from slackwater_schedules.models import Schedule, ScheduleFire
from slackwater_tasks.models import new_id
from slackwater_tenants.models import Tenant
from tests.lab.benchmarks import ground
from tests.lab.benchmarks.micro.cell import HANDLER, Cell
from tests.lab.benchmarks.micro.rounds import tell
from tests.lab.benchmarks.peer import report

CHUNK = 5_000
AHEAD_S = 5.0
EDIT_PAUSE_S = 0.05
LONGEST_S = 120.0


def fill(tenants: list[Tenant], live: int, due: int) -> Any:
    """Store ``live`` schedules, the first ``due`` of which fire at one moment, a few seconds from now; returns it."""
    rng, rows, task = random.Random(1), [], {"handler": HANDLER}
    now = timezone.now()
    for n in range(live):
        later = now + timedelta(seconds=rng.uniform(3_600, 86_400))
        rows.append(
            Schedule(
                id=new_id(), tenant=tenants[n % len(tenants)], name=f"s{n}", kind="interval", rule={"every_s": 86_400},
                task=task, anchor_at=later, next_fire_at=later, next_due_at=later,
            )
        )  # fmt: skip
        if len(rows) == CHUNK:
            Schedule._plain.bulk_create(rows)
            rows = []
            tell("storing", n, live)
    Schedule._plain.bulk_create(rows)
    with connection.cursor() as cur:
        cur.execute("ANALYZE slackwater_schedules_schedule")
    moment = timezone.now() + timedelta(seconds=AHEAD_S)
    first = list(Schedule._plain.order_by("pk").values_list("pk", flat=True)[:due])
    Schedule._plain.filter(pk__in=first).update(anchor_at=moment, next_fire_at=moment, next_due_at=moment)
    return moment


class Editor(threading.Thread):
    """Somebody who edits schedules all the while."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.took: list[float] = []

    def run(self) -> None:
        """Change one after the other."""
        rows = list(Schedule._plain.order_by("-pk").values_list("tenant_id", "pk")[:5_000])
        for number, (tenant_id, schedule_id) in enumerate(rows * 10):
            if self.stopping.wait(EDIT_PAUSE_S):
                break
            began = time.perf_counter()
            services.update_schedule(tenant_id, schedule_id, {"jitter_s": number % 7}, actor="bench")
            self.took.append(time.perf_counter() - began)
        connection.close()


def run(live: int, due: int, tenants: list[int]) -> None:
    """Fire as a beat does, for each number of tenants."""
    Cell(slots=2)
    everyone = ground.tenants(max(tenants))
    for count in tenants:
        ground.empty()
        with connection.cursor() as cur:
            cur.execute("TRUNCATE slackwater_schedules_schedule CASCADE")
        fill(everyone[:count], live, due)
        editor = Editor()
        editor.start()
        until = time.monotonic() + LONGEST_S
        while (done := ScheduleFire._plain.count()) < due:
            if time.monotonic() > until:
                raise RuntimeError(f"only {done} of {due} schedules had fired after {LONGEST_S:.0f} s")
            ahead = seconds_to_next() or 0.0
            if ahead > 0:
                time.sleep(min(ahead, 0.5))
                continue
            fire_due()
            tell("firing", done, due)
        editor.stopping.set()
        editor.join()
        late = sorted(ScheduleFire._plain.values_list("lateness_ms", flat=True))
        edits = sorted(editor.took) or [0.0]
        report(
            "RESULT", live=live, due=due, tenants=count, p50_ms=late[len(late) // 2],
            p99_ms=late[len(late) * 99 // 100], max_ms=late[-1], edits=len(editor.took),
            edit_p99_ms=round(1000 * edits[len(edits) * 99 // 100], 1),
        )  # fmt: skip
