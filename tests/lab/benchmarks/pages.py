"""Pages, plots and tables from the lines that runs have printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.lab.benchmarks.compare import OWN, OWN_VARIANTS, RIVALS
from tests.lab.benchmarks.scenarios import Scenario
from tests.lab.benchmarks.workloads import WORKLOADS
from tests.lab.reference.markdown import table

Result = dict[str, Any]
Key = tuple[str, str]
ENOUGH_TASKS = 20_000
ENOUGH_RUNS = 3
MOST_LOAD = 0.7
"""Load of a machine that is idle enough to measure on."""
NOTE = "<!-- Written by `python -m tests.lab bench --page`; its figures stand in {lines}. -->"
METHOD = """
## Method

Every peer runs in an environment of its own, on the same two servers (durable: fsync on), one after the other; the
runs are interleaved, so that whatever changes on the machine meets all of them. One process hands the tasks in; two
processes (or, for Procrastinate, one with two threads) run them. A task's function writes the time of its start and of
its end into shared memory, so neither latency nor completion depends on what a peer says of itself; a peer that keeps a
record is waited for until the record says so too.

- **Throughput**: from before the first submission to the last task recorded as finished.
- **CPU**: user and system seconds of the producer, all workers and both servers, for 1,000 tasks.
- **Submission**: while no worker runs; in bulk by the cheapest call the peer offers, one by one by the plain call.
- **Idle start**: from the call to the function's first line, one lone task at a time. The first six, which open
  connections, plan statements and make what lasts, stand apart in the lines (`lat_cold_ms`).
- **Start at half load**: the same while tasks arrive at random at half of the peer's own throughput; what is due at the
  same moment is submitted by one call.
"""


def key_of(result: Result) -> Key:
    """Peer and variant."""
    return str(result["peer"]), str(result.get("variant", "default"))


def label(key: Key) -> str:
    """As tables and plots name it."""
    return key[0] if key[1] == "default" else f"{key[0]}:{key[1]}"


def middle(results: Iterable[Result], pick: Callable[[Result], Any]) -> float | None:
    """The median of what ``pick`` finds; ``None`` when it finds nothing."""
    found = [value for result in results if (value := pick(result)) is not None]
    return median(found) if found else None


def groups(results: Sequence[Result]) -> dict[tuple[str, int], dict[Key, list[Result]]]:
    """By workload and number of tasks, then by peer, in the order of first appearance."""
    found: dict[tuple[str, int], dict[Key, list[Result]]] = {}
    for result in results:
        place = (str(result.get("workload", "noop")), int(result.get("tasks", 0)))
        found.setdefault(place, {}).setdefault(key_of(result), []).append(result)
    return found


def summary(results: Sequence[Result]) -> str:
    """A plain table for the terminal."""
    lines = []
    for (workload, tasks), peers in groups(results).items():
        lines.append(f"{workload}, {tasks} tasks")
        lines += ["  ".join(f"{text:<26}" if n == 0 else text for n, text in enumerate(row)) for row in _rows(peers)]
    return "\n".join(lines)


def write_comparison(page: Path, results: Sequence[Result], here: str) -> list[Path]:
    """Write page, plot and lines; returns the files."""
    from tests.lab.benchmarks.plots import plot

    raw = page.with_suffix(".jsonl")
    raw.write_text("".join(json.dumps(result) + "\n" for result in results), encoding="utf-8")
    picture = page.parent / "images" / f"{page.stem}.svg"
    picture.parent.mkdir(exist_ok=True)
    plot(picture, groups(results))
    runs = max(int(result.get("run", 1)) for result in results)
    parts = [NOTE.format(lines=raw.name), "# Benchmarks", _head(results, runs, here)]
    parts.append(f"![Throughput and processor time of each peer](images/{picture.name})")
    for (workload, tasks), peers in groups(results).items():
        parts += [
            f"## `{workload}`, {tasks:,} tasks",
            f"{WORKLOADS[workload].said.capitalize()}.",
            _table(peers),
        ]
        parts += _own_details(peers)
    parts += [METHOD.strip(), _peers(results)]
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return [page, picture, raw]


def _head(results: Sequence[Result], runs: int, here: str) -> str:
    load = float(results[0].get("load1_before", 0))
    text = (
        f"Measured on {here}; {runs} interleaved run{'s' if runs > 1 else ''} of each, medians, the spread in "
        f"brackets. The machine's load before the first run was {load:.1f}.\n\n    make bench"
    )
    if load > MOST_LOAD:
        text = (
            "**The machine was busy with other work**: the figures are too low, and by how much for whom is chance."
            f"\n\n{text}"
        )
    most = max(int(result.get("tasks", 0)) for result in results)
    if runs < ENOUGH_RUNS or most < ENOUGH_TASKS:
        text = (
            f"**A small run** ({runs} of at most {most:,} tasks): it shows the form of this page and that everything "
            f"works, and is no measurement to quote. `make bench` writes one.\n\n{text}"
        )
    return text


def _rows(peers: dict[Key, list[Result]]) -> list[tuple[str, ...]]:
    base = middle(next(iter(peers.values())), lambda r: r.get("tasks_per_s"))
    head = (
        "peer", "durable", "tasks/s", "×", "CPU s/1,000", "submit/s bulk", "one by one", "idle start p50/p95/p99 ms",
        "half load p50/p95/p99 ms",
    )  # fmt: skip
    return [head, *(_row(key, results, base) for key, results in peers.items())]


def _row(key: Key, results: Sequence[Result], base: float | None) -> tuple[str, ...]:
    rates = sorted(r["tasks_per_s"] for r in results if r.get("tasks_per_s"))
    rate = median(rates) if rates else None
    spread = f" ({rates[0]:,.0f}–{rates[-1]:,.0f})" if len(rates) > 1 else ""
    failed = sum(1 for r in results if r.get("error"))
    return (
        label(key) + (f" ({failed} failed)" if failed else ""),
        "yes" if results[0].get("durable_pg") else "no",
        f"{rate:,.0f}{spread}" if rate else "–",
        f"{rate / base:.2f}" if rate and base else "–",
        _number(middle(results, lambda r: r.get("cpu_s_per_1k")), ".3f"),
        _number(middle(results, lambda r: r.get("submit_per_s")), ",.0f"),
        _number(middle(results, lambda r: r.get("submit_one_per_s")), ",.0f"),
        _tails(results, "lat_idle_ms"),
        _tails(results, "lat_load50_ms"),
    )


def _table(peers: dict[Key, list[Result]]) -> str:
    head, *rows = _rows(peers)
    return table(head, rows)


def _number(value: float | None, form: str) -> str:
    return format(value, form) if value is not None else "–"


def _tails(results: Sequence[Result], field: str) -> str:
    found = [middle(results, lambda r, p=p: (r.get(field) or {}).get(p)) for p in ("p50", "p95", "p99")]  # type: ignore[misc]
    return " / ".join(_number(value, ".1f") for value in found)


def _own_details(peers: dict[Key, list[Result]]) -> list[str]:
    """What only the platform's own lines tell: REST, where the processor time goes, memory."""
    parts = []
    for key, results in peers.items():
        last = results[-1]
        if key[0] != OWN or last.get("error"):
            continue
        name = label(key)
        if rest := middle(results, lambda r: r.get("submit_rest_per_s")):
            parts.append(f"{name}, one task a request over REST with eight clients: {rest:,.0f} submissions a second.")
        if spent := last.get("cpu_by_process"):
            memory = last.get("memory_mb", {})
            rows = [
                (
                    process,
                    f"{seconds * 1000:.1f}",
                    ", ".join(f"{size:.0f}" for size in memory.get(process, [])[:6]),
                )
                for process, seconds in spent.items()
            ]
            parts.append(f"{name}, by process, the last run:")
            parts.append(table(("process", "CPU µs a task", "memory MiB (proportional)"), rows))
    return parts


def _peers(results: Sequence[Result]) -> str:
    rows = []
    for key in dict.fromkeys(map(key_of, results)):
        name, variant = key
        said = OWN_VARIANTS if name == OWN else RIVALS[name].variants
        version = next((r["version"] for r in results if key_of(r) == key and r.get("version")), "")
        rows.append((label(key), said[variant], version))
    return "## Peers\n\n" + table(("peer", "what it is", "versions"), rows)


def write_block(page: Path, scenario: Scenario, command: str, lines: Sequence[Result], here: str) -> None:
    """Replace the scenario's block in a page that is otherwise written by hand; added at the end when it has none."""
    begin, end = f"<!-- measured: {scenario.name} -->", f"<!-- end: {scenario.name} -->"
    rows = [[_cell(line.get(field, "")) for field in scenario.columns] for line in lines]
    body = "\n\n".join(
        [begin, f"### {scenario.title}", table(list(scenario.columns.values()), rows),
         f"`{command}` on {here}.", end]
    )  # fmt: skip
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    before, found, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    whole = before + body + after if found else f"{text.rstrip()}\n\n{body}\n"
    page.write_text(whole, encoding="utf-8")


def _cell(value: Any) -> str:
    if isinstance(value, dict):  # of many the quantiles
        return " / ".join(_number(value[part], ".1f") for part in ("p50", "p95", "p99"))
    return f"{value:,}" if isinstance(value, int) else str(value)
