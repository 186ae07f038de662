"""`python -m tests.lab bench`: how fast the platform is here, alone or beside others."""

from __future__ import annotations

import json
import signal
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from slackwater.local.servers import ServerError
from slackwater_conf import conf
from tests.lab.benchmarks import compare, machine, pages
from tests.lab.benchmarks.peer import Config
from tests.lab.benchmarks.scenarios import SCENARIOS, Scenario
from tests.lab.benchmarks.servers import Place, servers
from tests.lab.benchmarks.workloads import WORKLOADS

MEASURES = ("e2e", "submit", "submit-rest", "idle", "load50", "memory")
COMPARED = "celery,celery_django:keepconn,procrastinate,pgqueuer,pgqueuer:b100,slackwater,slackwater:coroutine"
LEAST_TASKS = 100


class Command(BaseCommand):
    """Measure on servers of the run's own; nothing of a running platform is touched."""

    help = (
        "Measure the platform on this machine: throughput, latency, processor time, memory. It starts servers of its "
        "own in a temporary folder, prints one JSON line per run, and leaves nothing behind."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--workload", action="append", metavar="NAME[:TASKS]",
            help=f"one of {', '.join(WORKLOADS)}, with the number of tasks; may be given several times (default noop)",
        )  # fmt: skip
        parser.add_argument(
            "--tasks", type=int, default=5000, help="tasks of a workload that names none (default 5000)"
        )
        parser.add_argument(
            "--peers", default="slackwater",
            help="who is measured, comma-separated, each with its variant after a colon; 'all': the comparison",
        )  # fmt: skip
        parser.add_argument("--runs", type=int, default=1, help="runs of each, interleaved (default 1)")
        parser.add_argument("--concurrency", type=int, default=2, help="worker processes (default 2)")
        parser.add_argument("--measures", default=",".join(MEASURES), help=f"of {','.join(MEASURES)} (default: all)")
        parser.add_argument("--idle-samples", type=int, default=100, help="lone tasks for the latency (default 100)")
        parser.add_argument("--load-rate", type=float, default=0, help="tasks a second for the latency under load")
        parser.add_argument("--timeout", type=float, default=240, help="seconds a workload may take (default 240)")
        parser.add_argument("--scenario", metavar="NAME", help=f"instead of workloads, one of: {', '.join(SCENARIOS)}")
        parser.add_argument(
            "--set", action="append", default=[], metavar="NAME=VALUE",
            help="a parameter of the scenario: a number, or several with commas",
        )  # fmt: skip
        parser.add_argument("--micro", dest="scenario", metavar="NAME", help="the same as --scenario")
        parser.add_argument("--database-url", default="", help="a PostgreSQL to use; its database is EMPTIED, and its "
                            "name must contain 'bench'")  # fmt: skip
        parser.add_argument("--redis-url", default="", help="a Redis to use; it must be empty, and is EMPTIED")
        parser.add_argument("--out", type=Path, help="append the JSON lines to this file too")
        parser.add_argument("--page", type=Path, help="write the comparison as a page with a plot, its lines beside it")

    def handle(self, *args: Any, **options: Any) -> None:
        """Measure, print a line per run, and write what was asked for."""
        self.console = Console(stderr=True)
        # Told to end, it leaves as after Ctrl-C: servers stopped, their folder gone.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        below = Path(conf().var) / "bench"
        try:
            # What was asked for wrongly is said before any server starts.
            work = self._scenario(options) if options["scenario"] else self._runs(options)
            with servers(below, options["database_url"], options["redis_url"]) as place:
                work(place)
        except ServerError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            raise CommandError("stopped") from None

    # -- workloads ----------------------------------------------------------------------------------------------------
    def _runs(self, options: dict[str, Any]) -> Callable[[Place], None]:
        peers = COMPARED if options["peers"] == "all" else options["peers"]
        specs = [compare.parse(text) for text in peers.split(",")]
        workloads = [_workload(text, options["tasks"]) for text in options["workload"] or ["noop"]]
        measures = _measures(options["measures"])
        for name in dict.fromkeys(name for name, _ in specs):
            self.console.print(f"preparing {name}", style="dim")
            compare.interpreter(name, Path(conf().var) / "bench" / "venvs")
        planned = [
            (workload, tasks, run, name, variant)
            for workload, tasks in workloads
            for run, name, variant in compare.interleaved(specs, options["runs"])
            # The others have no tenants and no graphs.
            if name == compare.OWN or not WORKLOADS[workload].mixed
        ]

        def work(place: Place) -> None:
            results = []
            for workload, tasks, run, name, variant in planned:
                config = compare.config_of(
                    place, name, variant, workload, tasks, concurrency=options["concurrency"], measures=measures,
                    idle_samples=options["idle_samples"], load_rate=options["load_rate"], timeout=options["timeout"],
                )  # fmt: skip
                result = self._one(place, config, f"{name}:{variant} {workload} {run}/{options['runs']}")
                results.append({**result, "run": run})
                self._put(results[-1], options["out"])
            self._report(results, options["page"], machine.describe(place.versions))

        return work

    def _report(self, results: list[dict[str, Any]], page: Path | None, here: str) -> None:
        if page:
            written = pages.write_comparison(page, results, here)
            self.console.print("written: " + ", ".join(map(str, written)))
        self.console.print(pages.summary(results), soft_wrap=True, highlight=False)
        if any(result.get("error") for result in results):
            raise CommandError("; ".join(sorted({str(r["error"]) for r in results if r.get("error")})))

    def _one(self, place: Place, config: Config, title: str) -> dict[str, Any]:
        python = compare.interpreter(config.peer, Path(conf().var) / "bench" / "venvs")
        with self._bar() as progress:
            bar = progress.add_task(title, total=1)

            def tell(phase: str, done: int, of: int) -> None:
                progress.update(bar, description=f"{title}: {phase}", completed=done, total=of)

            return compare.run_one(place, python, config, tell)

    def _bar(self) -> Progress:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        return Progress(*columns, console=self.console, transient=True)

    # -- scenarios ----------------------------------------------------------------------------------------------------
    def _scenario(self, options: dict[str, Any]) -> Callable[[Place], None]:
        scenario = SCENARIOS.get(options["scenario"])
        if scenario is None:
            raise CommandError(f"there is no scenario {options['scenario']!r}; known are {', '.join(SCENARIOS)}")
        parameters = _parameters(scenario, options["set"])

        def work(place: Place) -> None:
            lines = []
            with self._bar() as progress:
                bar = progress.add_task(scenario.name, total=None)

                def tell(phase: str, done: int, of: int) -> None:
                    progress.update(bar, description=f"{scenario.name}: {phase}", completed=done, total=of or None)

                for line in scenario.run(place, parameters, tell):
                    lines.append(line)
                    self._put(line, options["out"])
            for name, met in [one for line in lines for one in line.get("verdict", {}).items()]:
                self.console.print(f"{'met   ' if met else 'MISSED'} {name}", highlight=False, soft_wrap=True)
            if options["page"]:
                here = machine.describe(place.versions)
                pages.write_block(options["page"], scenario, _command(options), lines, here)
                self.console.print(f"written: {options['page']}")

        return work

    def _put(self, result: dict[str, Any], out: Path | None) -> None:
        line = json.dumps(result)
        self.stdout.write(line)
        self.stdout.flush()
        if out:
            with out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def _workload(text: str, tasks: int) -> tuple[str, int]:
    name, _, count = text.partition(":")
    if name not in WORKLOADS:
        raise CommandError(f"there is no workload {name!r}; known are {', '.join(WORKLOADS)}")
    number = int(count) if count.isdigit() else tasks
    if (count and not count.isdigit()) or number < LEAST_TASKS:
        raise CommandError(f"--workload {text}: the number of tasks must be at least {LEAST_TASKS}")
    return name, number


def _measures(text: str) -> tuple[str, ...]:
    wanted = tuple(text.split(","))
    if unknown := set(wanted) - set(MEASURES):
        raise CommandError(f"--measures: there is no {min(unknown)!r}; known are {', '.join(MEASURES)}")
    return wanted


def _parameters(scenario: Scenario, given: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = dict(scenario.parameters)
    for text in given:
        name, _, value = text.partition("=")
        if name not in values:
            raise CommandError(f"--set: {scenario.name} has no {name!r}; it has {', '.join(values)}")
        if isinstance(values[name], str):
            values[name] = value
            continue
        try:
            numbers = [int(part.replace("_", "")) for part in value.split(",")]
        except ValueError:
            raise CommandError(f"--set {text}: must be a number, or several with commas") from None
        values[name] = numbers if isinstance(values[name], list) else numbers[0]
    return values


def _command(options: dict[str, Any]) -> str:
    given = "".join(f" --set {text}" for text in options["set"])
    return f"python -m tests.lab bench --micro {options['scenario']}{given} --page {options['page']}"
