"""What is measured for the page, part by part; each gives the lines of its table."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from slackwater import Client
from slackwater.settings.place import ROOT
from tests.lab.attack import ground
from tests.lab.benchmarks.scenarios import Scenario
from tests.support.figures import FILE
from tests.support.processes import manage

Lines = list[dict[str, Any]]
TIMES: Final = 5
"""How often each command is run; the middle of them is told."""
COMMANDS: Final = (
    ("top", "--once"), ("status",), ("status", "{task}"), ("explain", "{waits}", "--tenant", "demo"), ("dead_letters",),
    ("nodes",), ("workflows",), ("tenants",), ("schedules", "--tenant", "demo"), ("usage", "--tenant", "demo"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A table of the page."""

    name: str
    title: str
    columns: Mapping[str, str]
    measure: Callable[[], Lines]

    @property
    def table(self) -> Scenario:
        return Scenario(name=self.name, title=self.title, parameters={}, columns=self.columns)


class Failed(Exception):
    """What was to be measured does not hold."""


def _environment() -> dict[str, str]:
    """Without what was set for this command, or for a platform that runs here."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SLACKWATER_", "DJANGO_"))}


def told(subject: str, *arguments: str) -> Lines:
    """Run tests, and read what they tell of a subject beside what they hold."""
    with tempfile.TemporaryDirectory(prefix="slackwater-figures-") as folder:
        file = Path(folder) / "figures.jsonl"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:randomly", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env={**_environment(), FILE: str(file)}, check=False, stdout=sys.stderr
        )
        if done.returncode:
            raise Failed(" ".join(arguments))
        found = [json.loads(line) for line in file.read_text().splitlines()]
    return [line for line in found if line["subject"] == subject]


# -- the tables ---------------------------------------------------------------------------------------------------------
def output() -> Lines:
    return told("output", "-m", "slow", "tests/integration/runtime/test_output_rate.py")


def silent() -> Lines:
    """The throughput of tasks that print nothing, that do, and of a platform that catches nothing."""
    peers = ("slackwater:deaf", "slackwater", "slackwater:says")
    command = [sys.executable, "-m", "tests.lab", "bench", "--peers", ",".join(peers), "--workload", "noop:20000",
               "--measures", "e2e", "--runs", str(TIMES)]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env=_environment(), check=False, stdout=subprocess.PIPE, text=True)
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or any("error" in one and one["error"] for one in results):
        raise Failed("the benchmark")
    rates = {peer: [r["tasks_per_s"] for r in results if peer == _peer(r)] for peer in peers}
    base = rates[peers[0]]
    words = ("nothing is caught", "caught, and nothing printed", "each prints a line")
    return [
        {
            "what": what, "tasks_per_s": f"{median(rates[peer]):,.0f}",
            "spread": f"{min(rates[peer]):,.0f}–{max(rates[peer]):,.0f}",
            "ratio": f"{median(own / other for own, other in zip(rates[peer], base, strict=True)):.3f}",
        }
        for what, peer in zip(words, peers, strict=True)
    ]  # fmt: skip


def _peer(result: Mapping[str, Any]) -> str:
    return str(result["peer"]) + (f":{result['variant']}" if result["variant"] != "default" else "")


def million() -> Lines:
    """Of each kind of page how many there are, and the middle and the most of what they take."""
    found = told("million", "-m", "slow", "tests/integration/admin/test_million.py")
    return list(_summed(found))


def _summed(found: Lines) -> Iterator[dict[str, Any]]:
    for kind in dict.fromkeys(line["kind"] for line in found):
        of_kind = [line for line in found if line["kind"] == kind]
        slowest = max(of_kind, key=lambda line: float(line["ms"]))
        yield {
            "kind": kind, "count": len(of_kind), "ms": f"{median(line['ms'] for line in of_kind):.0f} / {slowest['ms']:.0f}",
            "slowest": f"`{slowest['name']}`",
            **{name: f"{max(line[name] for line in of_kind):,}" for name in ("statements", "pages", "rows")},
        }  # fmt: skip


def commands() -> Lines:
    """The processor time of each command, beside a platform that has some work."""
    with ground.platform() as made:
        lines = (made.var / "demo.env").read_text().splitlines()
        given = dict(line.split("=", 1) for line in lines if line.startswith("SLACKWATER_"))
        client = Client(given["SLACKWATER_URL"], given["SLACKWATER_KEY"])
        for n in range(100):
            client.submit(handler="demo.sleep", args=[600], name=f"report {n}")
        ended = client.submit(handler="demo.add", args=[2, 3], category="urgent")["id"]
        waits = client.submit(handler="demo.sleep", args=[1], name="waits")["id"]
        client.submit_workflow([{"name": "a", "handler": "demo.echo"}], name="nightly")
        found = []
        for command in COMMANDS:
            words = [word.format(task=ended, waits=waits) for word in command]
            people, programs = ([_seconds(made.var, *words, *form) for _ in range(TIMES)] for form in ((), ("--json",)))
            name = " ".join(word for word in command if word[:1] not in "-{" and word != "demo")
            name += " ID" if "{" in "".join(command) else ""
            found.append({"command": f"`{name}`", "cpu_s": f"{median(people):.2f}", "json_s": f"{median(programs):.2f}",
                          "most_s": f"{max(*people, *programs):.2f}"})  # fmt: skip
        return found


def _seconds(var: Path, *arguments: str) -> float:
    """The processor time of a command and of what it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        manage(*arguments), env={**_environment(), "SLACKWATER_VAR": str(var)}, check=False, capture_output=True
    )
    if done.returncode:
        raise Failed(f"{' '.join(arguments)}: {done.stderr.decode()[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def clicks() -> Lines:
    found = told("clicks", "-m", "browser", "tests/e2e/test_seven_questions.py")
    return [{**line, "question": line["question"].removeprefix("test_").replace("_", " ")} for line in found]


def looks() -> Lines:
    return told("axe", "-m", "browser", "tests/e2e/test_admin_pages.py", "tests/e2e/test_console_browser.py")


PARTS: Final[Sequence[Part]] = (
    Part(
        name="output", title="Lines from a hundred tasks at once", measure=output,
        columns={"lines": "lines", "per_s": "a second", "lost": "lost", "cpu_ms": "CPU ms for 1,000"},
    ),
    Part(
        name="silent", title="No-op tasks a second, with and without output", measure=silent,
        columns={"what": "", "tasks_per_s": "tasks a second", "spread": "least–most", "ratio": "of the first, run by run"},
    ),
    Part(
        name="million", title="Pages over a million tasks", measure=million,
        columns={"kind": "", "count": "looked at", "ms": "database ms, middle / most", "slowest": "the slowest",
                 "statements": "most statements", "pages": "most pages of 8 KiB", "rows": "most rows"},
    ),
    Part(
        name="commands", title="Processor time of commands", measure=commands,
        columns={"command": "`manage.py`", "cpu_s": "s", "json_s": "with `--json`", "most_s": "most of all runs"},
    ),
    Part(
        name="clicks", title="Questions at three in the morning", measure=clicks,
        columns={"question": "question", "clicks": "clicks from the live page"},
    ),
    Part(
        name="looks", title="Pages in three widths and two themes", measure=looks,
        columns={"where": "pages of", "pages": "pages", "looks": "looks", "faults": "serious or critical, or too wide"},
    ),
)  # fmt: skip
