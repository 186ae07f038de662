"""Slackwater as one more peer of a comparison harness that runs scripts with its own module ``common``.

The harness sets ``BENCH_CFG`` (servers, tasks, concurrency) and puts ``common`` on the path.
Variants: ``default``; ``events`` (a listener to task events is connected, as Flower would be); ``coroutine``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import common  # type: ignore[import-not-found]  # the harness's own module

ROOT = Path(__file__).resolve().parents[4]
ENV = {
    "SLACKWATER_DATABASE_URL": common.CFG["pg"],
    "SLACKWATER_REDIS_URL": common.CFG["redis"],
    "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded",
    "SLACKWATER_SECRET_KEY": "only-for-benchmarks-only-for-benchmarks-only",
    "SLACKWATER_LOG_LEVEL": "WARNING",
}
os.environ.update(ENV)
sys.path[:0] = [str(ROOT), str(ROOT / "platform"), str(ROOT / "apps"), str(Path(__file__).parent)]

import django  # noqa: E402 - the settings are named first

TENANTS = 3
CHUNK = 1000


class Peer(common.Peer):  # type: ignore[misc]  # untyped module of the harness
    """Setup, workers and submission as the harness asks for them."""

    name, packages, durable = "slackwater", ("celery", "psycopg", "redis", "Django"), True

    def setup(self) -> None:
        """Migrate an empty database and create the tenants."""
        self.pg().execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        django.setup()
        import bench_handlers  # type: ignore[import-not-found]  # noqa: F401 - beside this script
        from django.core.management import call_command

        from slackwater_tenants.models import Plan
        from slackwater_tenants.services import create_tenant

        call_command("migrate", verbosity=0)
        Plan.objects.create(
            slug="bench", name="Bench", tasks_per_hour=2_000_000_000, burst=500_000, max_waiting=50_000_000,
            max_in_flight=1_000_000, max_dag_tasks=1_000_000, max_dag_edges=1_000_000,
        )  # fmt: skip
        self.tenants = [create_tenant(f"bench{n}", f"Bench {n}", "bench") for n in range(TENANTS)]
        self.handler = "bench.awork" if self.variant == "coroutine" else "bench.work"

    def reset(self) -> None:
        """Empty the ledger."""
        self.flush_redis()
        self.pg().execute(
            "TRUNCATE slackwater_tasks_task, slackwater_tasks_livetask, slackwater_tasks_attempt,"
            " slackwater_tasks_dependency, slackwater_tasks_taskevent, slackwater_tasks_deadletter,"
            " slackwater_tenants_endcounter;"
            "UPDATE slackwater_tenants_tenantcounter SET unfinished = 0, urgent_unfinished = 0, ended = 0, urgent_ended = 0"
        )

    def worker_cmds(self) -> list[list[str]]:
        """The whole platform, less API, beat and Flower."""
        python, manage = sys.executable, str(ROOT / "manage.py")
        worker = [
            "worker",
            "-c",
            str(self.conc),
            "-n",
            "bench@%h",
            "--without-gossip",
            "--without-mingle",
            "-l",
            "WARNING",
        ]
        commands = [
            [python, manage, "run_dispatcher"],
            [python, manage, "run_upkeep"],
            [python, "-m", "celery", "-q", "-A", "slackwater", *worker, "-I", "bench_handlers"],
        ]
        if self.variant == "events":
            commands.append([python, "-m", "celery", "-q", "-A", "slackwater", "events", "--dump"])
        return commands

    def start(self) -> None:
        """Start them with the path they need."""
        path = os.pathsep.join([common.HERE, *sys.path[:4]])
        log = Path(common.CFG["log"]).open("ab")  # noqa: SIM115 - the processes keep it
        for command in self.worker_cmds():
            env = {**os.environ, "PYTHONPATH": path}
            self.procs.append(
                subprocess.Popen(command, env=env, cwd=common.HERE, stdout=log, stderr=log, start_new_session=True)
            )

    def submit(self, i: int, ms: float) -> None:
        """One task over the Python call."""
        from slackwater_tasks.submission.service import submit

        submit(self.tenants[i % TENANTS], self._data(i, ms))

    def submit_bulk(self, lo: int, hi: int, ms: float) -> None:
        """Chunks, one for each tenant in turn."""
        from slackwater_tasks.submission.service import submit_many

        for chunk, start in enumerate(range(lo, hi, CHUNK)):
            items = [self._data(i, ms) for i in range(start, min(hi, start + CHUNK))]
            submit_many(self.tenants[chunk % TENANTS], items)

    def _data(self, i: int, ms: float) -> dict[str, Any]:
        return {"handler": self.handler, "args": [i, ms]}

    def recorded(self) -> int:
        """Tasks recorded as succeeded."""
        return int(self.pg().execute("SELECT count(*) FROM slackwater_tasks_task WHERE state = 6").fetchone()[0])


common.main(Peer())
