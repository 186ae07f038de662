"""`manage.py simulate`: what would have happened under other policies, or on other nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.plain_text import counted
from scheduler_ext.policies.registry import ORDER_POLICIES, SHARE_POLICIES, order_policy, share_policy
from scheduler_ext.simulation import report, scenarios, task_report, traces
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.generator import moment
from scheduler_ext.simulation.learning import Learning
from scheduler_ext.simulation.model import Run, Trace
from slackwater.management.console import PlatformCommand, parse_json
from slackwater_tasks.field_kinds import Object


class Command(PlatformCommand):
    for_tenant = False
    help = (
        "Run a trace (SWF, WfFormat 1.5, Azure CSV, YAML generator, or the scenario 'quota') in virtual time under "
        "the policies named, and compare them."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("trace", nargs="?", help="a file (.swf, .swf.gz, .json, .csv, .yaml) or: quota")
        parser.add_argument(
            "--example", choices=scenarios.EXAMPLES, help="a worked example, told task by task, in place of a trace"
        )
        parser.add_argument("--tasks", action="store_true", help="tell each task and tenant, too, in the JSON as well")
        parser.add_argument(
            "--policy",
            action="append",
            metavar="ORDER/SHARE",
            help="for example fifo/equal; may be given several times; 'all': every order and every share",
        )
        parser.add_argument("--order-parameters", metavar="JSON", default="{}", help="of every order policy named")
        parser.add_argument("--share-parameters", metavar="JSON", default="{}", help="of every share policy named")
        parser.add_argument("--nodes", type=int, help="number of nodes (default: what the trace suggests)")
        parser.add_argument("--slots", type=int, help="slots of one node")
        parser.add_argument("--load", type=float, default=1.0, help="let the work arrive this many times as fast")
        parser.add_argument("--seed", type=int, default=0, help="of the YAML generator")
        parser.add_argument("--peak", type=int, help="off-peak work starts below this utilization, in thousandths")
        parser.add_argument("--ceiling", type=int, help="delayable work starts below this, in thousandths")
        parser.add_argument(
            "--windows", metavar="TEXT", help="ceilings by time of day, as the setting ceiling_windows has them"
        )
        parser.add_argument(
            "--begins", metavar="TIME", help="when the trace begins, like 2026-01-05T18:00:00+01:00, for windows"
        )
        parser.add_argument(
            "--expect", choices=("given", "learnt", "requested"), default="given",
            help="how long a task is expected to run: what the trace says (of a log without requests: the real time), "
            "what was learnt from tasks that have ended by then, or what was requested and else nothing",
        )  # fmt: skip
        parser.add_argument(
            "--max-running", type=int, metavar="N", help="so many tasks of a workflow run at a time, at most"
        )
        parser.add_argument("--no-backfill", action="store_true", help="keep no node for what does not fit yet")
        parser.add_argument(
            "--json", dest="file", type=Path, metavar="FILE", help="write the numbers as JSON ('-': print them)"
        )
        parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw PNG and SVG pictures into it")

    def run(self, options: dict[str, Any]) -> None:
        self.as_json = options["file"] == Path("-")
        if options["pictures"] and find_spec("matplotlib") is None:
            raise InvalidInput(
                "needs matplotlib: `make env-dev`, or pip install 'slackwater[simulation]'", field="--pictures"
            )
        work = load(options["trace"], options["example"], options["seed"])
        trace, cell = work.trace, work.cell
        trace = traces.hurry(trace, options["load"])
        traces.limit_workflows(trace, _positive(options["max_running"], 0, "--max-running"))
        cell = replace(
            cell,
            nodes=_positive(options["nodes"], cell.nodes, "--nodes"),
            slots=_positive(options["slots"], cell.slots, "--slots"),
        )
        if options["begins"]:
            trace = replace(trace, begins_at=moment(options["begins"], "--begins"))
        conf = _conf(options, trace)
        given = {**work.share_parameters, **_json(options["share_parameters"], "--share-parameters")}
        orders = {**work.order_parameters, **_json(options["order_parameters"], "--order-parameters")}
        _check_targets(options)
        runs = []
        with self.bar() as progress:
            for order, share in pairs(options["policy"] or [work.policy]):
                bar = progress.add_task(f"{order}/{share}", total=len(trace.jobs))
                engine = Engine(
                    trace,
                    cell,
                    order=order_policy(order, _known(orders, ORDER_POLICIES[order])),
                    share=share_policy(share, _known(given, SHARE_POLICIES[share])),
                    conf=conf,
                    backfill=not options["no_backfill"],
                    learning=_learning(options["expect"], trace),
                    progress=lambda done, bar=bar: progress.update(bar, completed=done),  # type: ignore[misc]
                )
                runs.append(engine.run(time.perf_counter))
                progress.update(bar, completed=len(trace.jobs))
        self._report(runs, options, conf)

    def _report(self, runs: list[Run], options: Mapping[str, Any], conf: SchedulerConf) -> None:
        measures = [report.measure(run) for run in runs]
        told = report.as_json(measures)
        by_task = options["tasks"] or bool(options["example"])
        for run, each in zip(runs, told, strict=True) if by_task else ():
            each |= {"tasks": task_report.tasks(run), "tenants": task_report.tenants(run)}
        numbers = json.dumps(told, indent=2)
        if self.as_json:
            self.stdout.write(numbers)
        else:
            run = runs[0]
            tenants = counted(len(run.trace.tenants) or 1, "tenant")
            self.stdout.write(
                f"{run.trace.name}: {counted(len(run.trace.jobs), 'task')} of {tenants} on "
                f"{counted(run.cell.nodes, 'node')} of {counted(run.cell.slots, 'slot')}; times in seconds\n"
            )
            for done in runs if by_task else ():
                self.stdout.write(task_report.told(done))
            self.stdout.write(report.table(measures))
            if options["file"]:
                options["file"].write_text(numbers + "\n", encoding="utf-8")
        for run in runs:
            if run.unplaced:
                self.stderr.write(f"{run.label}: {counted(len(run.unplaced), 'task')} could never run on these nodes")
        if options["pictures"]:
            from scheduler_ext.simulation import plots

            written = [
                path for run in runs for path in plots.draw(run, options["pictures"], peak_permille=conf.peak_permille)
            ]
            written += plots.compare(measures, options["pictures"])
            self.stderr.write(f"{len(written)} pictures in {options['pictures']}")


def _check_targets(options: Mapping[str, Any]) -> None:
    """Refuse files that cannot be written before minutes of simulating, not after."""
    try:
        if options["pictures"]:
            options["pictures"].mkdir(parents=True, exist_ok=True)
        if options["file"] and options["file"] != Path("-"):
            options["file"].open("a").close()
    except OSError as error:
        raise InvalidInput(f"{error.filename} cannot be written: {error.strerror}") from error


def load(name: str | None, example: str | None, seed: int) -> scenarios.Scenario:
    """Work by file or by name, with its cell and the policies it suggests."""
    if (name is None) == (example is None):
        raise InvalidInput("give a file, or quota, or else --example", field="trace")
    if name is None or name == "quota":
        return scenarios.quota() if name else scenarios.example(str(example))
    trace, cell = traces.read(Path(name), seed=seed)
    if not trace.jobs:
        raise InvalidInput(f"{name} holds no tasks", field="trace")
    return scenarios.Scenario(trace=trace, cell=cell)


def pairs(given: list[str]) -> list[tuple[str, str]]:
    """Order and share policies by name; ``all`` is every order with equal turns and every share with FIFO."""
    chosen: dict[tuple[str, str], None] = {}
    for text in given:
        if text == "all":
            chosen.update({(order, "equal"): None for order in ORDER_POLICIES})
            chosen.update({("fifo", share): None for share in SHARE_POLICIES})
            continue
        order, _, share = text.partition("/")
        order_policy(order)
        share_policy(share or "equal")
        chosen[order, share or "equal"] = None
    return list(chosen)


def _known(parameters: Mapping[str, Any], policy: type[Any]) -> dict[str, Any]:
    """Of parameters given for several policies those that this one takes."""
    return {name: value for name, value in parameters.items() if name in policy.__dataclass_fields__}


def _conf(options: Mapping[str, Any], trace: Trace) -> SchedulerConf:
    conf = SchedulerConf()
    return replace(
        conf,
        peak_permille=options["peak"] or conf.peak_permille,
        delayable_permille=options["ceiling"] or 1000,
        ceiling_windows=trace.ceiling_windows if options["windows"] is None else options["windows"],
    )


def _learning(expect: str, trace: Trace) -> Learning | None:
    return None if expect == "given" else Learning(trace, learns=expect == "learnt")


def _positive(value: int | None, default: int, option: str) -> int:
    if value is not None and value < 1:
        raise InvalidInput("must be at least 1", field=option)
    return value or default


def _json(text: str, option: str) -> dict[str, Any]:
    return Object().check(parse_json(text, option), option)
