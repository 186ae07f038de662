"""The picture of a comparison: throughput with its spread, and processor time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from tests.lab.benchmarks import pages

if TYPE_CHECKING:
    from tests.lab.benchmarks.pages import Key, Result

OURS, THEIRS = "#1f6f8b", "#b8b8b8"
# The same run gives the same file: no date, no random ids; text stays text.
mpl.rcParams.update({"svg.hashsalt": "slackwater", "svg.fonttype": "none"})


def plot(path: Path, found: dict[tuple[str, int], dict[Key, list[Result]]]) -> None:
    """One row of two bar charts for each workload."""
    figure = Figure(figsize=(10, 0.8 + 2.4 * len(found)), layout="constrained")
    axes = figure.subplots(len(found), 2, squeeze=False)
    for (place, peers), row in zip(found.items(), axes, strict=True):
        measured = {key: results for key, results in peers.items() if any(r.get("tasks_per_s") for r in results)}
        _throughput(row[0], place, measured)
        _cost(row[1], measured)
    figure.savefig(path, metadata={"Date": None})


def _throughput(axis: Any, place: tuple[str, int], peers: dict[Key, list[Result]]) -> None:
    for at, (key, results) in enumerate(peers.items()):
        rates = sorted(r["tasks_per_s"] for r in results if r.get("tasks_per_s"))
        rate = pages.middle(results, lambda r: r.get("tasks_per_s")) or 0
        spread = [[rate - rates[0]], [rates[-1] - rate]]
        axis.barh(at, rate, xerr=spread, color=_colour(key), height=0.7, error_kw={"ecolor": "#444", "capsize": 2})
        axis.annotate(f" {rate:,.0f}", (rates[-1], at), va="center", fontsize=8)
    axis.margins(x=0.18)
    _name(axis, peers, f"{place[0]}, {place[1]:,} tasks: tasks a second")


def _cost(axis: Any, peers: dict[Key, list[Result]]) -> None:
    for at, (key, results) in enumerate(peers.items()):
        seconds = pages.middle(results, lambda r: r.get("cpu_s_per_1k")) or 0
        axis.barh(at, seconds, color=_colour(key), height=0.7)
        axis.annotate(f" {seconds:.3f}", (seconds, at), va="center", fontsize=8)
    axis.margins(x=0.18)
    _name(axis, peers, "CPU seconds for 1,000 tasks, everything counted")


def _name(axis: Any, peers: dict[Key, list[Result]], title: str) -> None:
    axis.set_yticks(range(len(peers)), [pages.label(key) for key in peers], fontsize=8)
    axis.invert_yaxis()
    axis.set_title(title, fontsize=9, loc="left")
    axis.tick_params(axis="x", labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def _colour(key: Key) -> str:
    return OURS if key[0] == "slackwater" else THEIRS
