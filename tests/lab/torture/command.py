"""`python -m tests.lab torture`: a mixed workload on real processes that are killed, stopped and restarted at random."""

from __future__ import annotations

import json
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

if TYPE_CHECKING:
    from tests.lab.torture.run import Options


def _parts(say: Callable[[str], None], *, links: bool) -> dict[str, bool]:
    """Which of links and clocks a run has; says why not. From here on this thread may be in a network of its own."""
    from tests.lab.torture import clocks
    from tests.lab.torture.links import leave_network, obstacle

    why = obstacle() if links else "they were not wanted"
    if why:
        say(f"without links between hosts: {why}")
    else:
        leave_network()
    if clocks.compiler() is None:
        say("without clocks that step: there is no C compiler")
    return {"links": not why, "clocks": clocks.compiler() is not None}


class Command(BaseCommand):
    """Run it and print the account."""

    help = "Run a mixed workload on a platform of its own, inject faults at random, and account for every task."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--tasks", type=int, default=200, help="tasks to submit (default 200)")
        parser.add_argument("--faults", type=int, default=20, help="faults to inject (default 20)")
        parser.add_argument("--seed", type=int, default=1, help="the same seed draws the same run (default 1)")
        parser.add_argument("--nodes", type=int, default=2, help="workers (default 2)")
        parser.add_argument("--concurrency", type=int, default=2, help="processes of each worker (default 2)")
        parser.add_argument("--only", action="append", metavar="FAULT", help="only this kind; repeatable")
        parser.add_argument(
            "--celery", action="store_true", help="the comparison: Celery with its defaults on Redis instead"
        )
        parser.add_argument(
            "--on-this-network",
            action="store_true",
            help="no links between namespaces, even where root could make them",
        )
        parser.add_argument(
            "--attacker", action="store_true", help="somebody who writes to Redis forges and breaks messages all along"
        )
        parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
        parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep all data and logs in this folder")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run, report; the exit code is 1 when anything is at fault."""
        from tests.lab.torture import faults
        from tests.lab.torture.run import Options

        unknown = set(options["only"] or ()) - set(faults.FAULTS)
        if options["attacker"] and options["celery"]:
            raise CommandError("--attacker: plain Celery has nothing to hold against one")
        if unknown:
            raise CommandError(f"--only: there is no fault {min(unknown)!r}; known are {', '.join(faults.FAULTS)}")
        for name in ("tasks", "nodes", "concurrency"):
            if options[name] < 1:
                raise CommandError(f"--{name} must be at least 1")
        asked = Options(
            tasks=options["tasks"], faults=options["faults"], seed=options["seed"], nodes=options["nodes"],
            concurrency=options["concurrency"], only=tuple(options["only"] or ()),
            attacker=options["attacker"],
        )  # fmt: skip
        began = time.monotonic()

        def say(text: str) -> None:
            self.stderr.write(f"{time.monotonic() - began:7.1f}  {text}")

        with tempfile.TemporaryDirectory(prefix="slackwater-torture-") as temporary:
            folder = (options["keep"] or Path(temporary)).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise CommandError(f"--keep: {folder} is not empty")
            parts = _parts(say, links=not options["on_this_network"])
            if options["celery"]:
                self._compare(folder, asked, parts, say, as_json=options["json"])
            else:
                self._torture(folder, asked, parts, say, as_json=options["json"])

    def _compare(
        self,
        folder: Path,
        asked: Options,
        parts: dict[str, bool],
        say: Callable[[str], None],
        *,
        as_json: bool,
    ) -> None:
        from tests.lab.torture import comparison

        cluster = comparison.PlainCluster(
            folder, nodes=asked.nodes, concurrency=asked.concurrency, conf=asked.conf, **parts
        )
        with cluster:
            row = comparison.Comparison(cluster, folder, asked, say).run()
        self.stdout.write(json.dumps(asdict(row), indent=2) if as_json else comparison.table(row))

    def _torture(
        self,
        folder: Path,
        asked: Options,
        parts: dict[str, bool],
        say: Callable[[str], None],
        *,
        as_json: bool,
    ) -> None:
        from tests.lab.torture import report
        from tests.lab.torture.cluster import Cluster
        from tests.lab.torture.run import Torture

        cluster = Cluster(folder, nodes=asked.nodes, concurrency=asked.concurrency, conf=asked.conf, **parts)
        with cluster:
            result = Torture(cluster, folder, asked, say).run()
        found = report.as_json(result)
        self.stdout.write(json.dumps(found, indent=2) if as_json else report.table(result))
        if not found["passed"]:
            details = json.dumps(
                {name: found[name] for name in ("bars", "ids", "stories", "stuck", "refused")}, indent=1
            )
            raise CommandError(f"the run is not clean: {details}")
