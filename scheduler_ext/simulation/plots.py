"""Draws runs: waiting by tenant, utilization with the peak line, dominant shares, and a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from scheduler_ext.simulation import report
from scheduler_ext.simulation.model import Run

SHOWN_TENANTS: Final = 12
"""How many tenants, those with the largest areas, are drawn one by one; the rest is drawn together."""
FORMATS: Final = ("png", "svg")


def draw(run: Run, folder: Path, *, peak_permille: int = 800) -> list[Path]:
    """Draw three pictures of one run, as PNG and SVG; returns their paths."""
    at = report.times(run)
    hours = at / 3600 if len(at) > 1 and at[-1] - at[0] > 7200 else at
    unit = "hours" if hours is not at else "seconds"
    stem = run.label.replace("/", "-")
    written = []
    written += _stacked(
        folder / f"{stem}-waiting", hours, unit, report.waiting_by_tenant(run, at), run, "tasks waiting"
    )
    written += _utilization(folder / f"{stem}-utilization", hours, unit, run, at, peak_permille)
    written += _stacked(folder / f"{stem}-shares", hours, unit, report.shares_over_time(run, at), run, "dominant share")
    return written


def compare(measures: Sequence[report.Measures], folder: Path) -> list[Path]:
    figure = Figure(figsize=(11, 1.6 + 0.45 * len(measures)), layout="constrained")
    labels = [each.label for each in measures]
    panels = (
        ("mean wait, s", [each.wait_mean_s for each in measures]),
        ("p95 wait, s", [each.wait_p95_s for each in measures]),
        ("mean slowdown", [each.slowdown_mean for each in measures]),
        ("utilization", [each.utilization for each in measures]),
    )
    axes = figure.subplots(1, len(panels), sharey=True)
    for axis, (title, values) in zip(axes, panels, strict=True):
        axis.barh(labels, values, color="#3b7dd8")
        axis.set_title(title, fontsize=10)
        axis.tick_params(labelsize=8)
    axes[0].invert_yaxis()
    return _save(figure, folder / "policies")


def _utilization(path: Path, x: Any, unit: str, run: Run, at: Any, peak_permille: int) -> list[Path]:
    figure, axis = _canvas(run, unit, "utilization")
    axis.fill_between(x, report.utilization_over_time(run, at), step="mid", color="#3b7dd8", alpha=0.7)
    axis.axhline(peak_permille / 1000, color="#c0392b", linestyle="--", label=f"peak ({peak_permille / 10:g} %)")
    axis.set_ylim(0, 1.05)
    axis.legend(loc="upper right", fontsize=8)
    return _save(figure, path)


def _stacked(path: Path, x: Any, unit: str, curves: Mapping[int, report.Floats], run: Run, what: str) -> list[Path]:
    figure, axis = _canvas(run, unit, what)
    ranked = sorted(curves, key=lambda tenant: -float(curves[tenant].sum()))
    shown, rest = ranked[:SHOWN_TENANTS], ranked[SHOWN_TENANTS:]
    layers = [curves[tenant] for tenant in shown]
    labels = [run.trace.tenants.get(tenant, f"tenant {tenant}") for tenant in shown]
    if rest:
        layers.append(np.sum([curves[tenant] for tenant in rest], axis=0))
        labels.append(f"{len(rest)} others")
    if layers:
        colours = [colormaps["tab20"](number) for number in range(len(layers))]
        axis.stackplot(x, *layers, labels=labels, colors=colours)
        axis.legend(loc="upper right", fontsize=7, ncols=2)
    return _save(figure, path)


def _canvas(run: Run, unit: str, what: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(10, 4), layout="constrained")
    axis = figure.subplots()
    axis.set_title(f"{run.trace.name}: {run.label}", fontsize=11)
    axis.set_xlabel(f"time, {unit}")
    axis.set_ylabel(what)
    return figure, axis


def _save(figure: Figure, path: Path) -> list[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [path.with_name(f"{path.name}.{ending}") for ending in FORMATS]
    for target in written:
        figure.savefig(target, dpi=110)
    return written
