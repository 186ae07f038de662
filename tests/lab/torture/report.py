"""A run's result as one table, and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from tests.lab.torture.clients import Tally
from tests.lab.torture.run import Result

WORDS = {
    "lost": "lost", "stuck": "stuck", "wrong_end": "ended wrongly", "at_the_same_time": "run twice at the same time",
    "recorded_twice": "recorded twice", "submitted_twice": "submitted twice", "effects_doubled": "effects doubled",
    "effects_missing": "effects missing", "order": "order violations", "mutex": "mutex violations",
    "attempts": "attempts miscounted", "work": "work lost beyond the last checkpoint", "counters": "counters off",
}  # fmt: skip


ENOUGH_FAULTS = 100
"""So many that a 99th percentile is more than the maximum: from then on the bars count for the verdict."""
SUCCEED_PERCENT, OUTAGE_S, RECOVERY_S = 99.0, 10.0, 15.0


def percentile(values: list[float], share: float) -> float:
    """The smallest value that ``share`` of them do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def as_json(result: Result) -> dict[str, Any]:
    """Everything, as plain values."""
    mended = [r.seconds for r in result.recoveries if r.seconds]
    return {
        "options": asdict(result.options), "seconds": round(result.seconds, 1), "faults": dict(result.injected()),
        "side": asdict(result.side), "at_fault": result.verdict.counts(), "bars": bars(result),
        "passed": passed(result),
        "recovery_s": {
            "p50": round(percentile(mended, 0.5), 2), "p99": round(percentile(mended, 0.99), 2),
            "max": round(max(mended, default=0.0), 2),
            "not_mended": sum(1 for r in result.recoveries if r.seconds is None),
        },
        "submissions": _tally(result.submitting), "status_calls": _tally(result.asking),
        "crashes": dict(result.crashes), "refused": result.refused, "stuck": [list(map(str, s)) for s in result.stuck],
        "ids": {name: ids[:20] for name, ids in asdict(result.verdict).items() if ids},
        "stories": result.stories, "attacks": dict(result.attacks),
        "recoveries": [asdict(r) for r in result.recoveries],
    }  # fmt: skip


def bars(result: Result) -> dict[str, bool]:
    """How fast and how reachable it was to be, and whether it was."""
    mended = [r.seconds for r in result.recoveries if r.seconds]
    calls = [_tally(tally) for tally in (result.submitting, result.asking)]
    return {
        f"{SUCCEED_PERCENT:g} % of submissions and of status calls succeed":
        all(tally["succeeded_percent"] >= SUCCEED_PERCENT for tally in calls),
        f"no outage over {OUTAGE_S:g} s": all(tally["longest_outage_s"] <= OUTAGE_S for tally in calls),
        f"recovery p99 at most {RECOVERY_S:g} s": percentile(mended, 0.99) <= RECOVERY_S,
    }  # fmt: skip


def passed(result: Result) -> bool:
    """Whether nothing is at fault and, where there were enough faults to say, every bar is met."""
    return result.clean() and (len(result.recoveries) < ENOUGH_FAULTS or all(bars(result).values()))


def _tally(tally: Tally) -> dict[str, Any]:
    share = 100.0 * (tally.asked - tally.failed) / tally.asked if tally.asked else 100.0
    first = 100.0 * tally.at_once / tally.asked if tally.asked else 100.0
    return {
        "asked": tally.asked, "succeeded_percent": round(share, 2), "at_once_percent": round(first, 2),
        "longest_outage_s": round(tally.longest_s, 2), "refusals": tally.refused,
    }  # fmt: skip


def table(result: Result) -> str:
    """The one table."""
    found = as_json(result)
    side, recovery = found["side"], found["recovery_s"]
    rows: list[tuple[str, object]] = [(f"fault: {kind}", n) for kind, n in sorted(found["faults"].items())]
    rows += [("faults in all", sum(found["faults"].values()))]
    if found["attacks"]:
        rows += [("forged or broken messages, entries and keys", sum(found["attacks"].values()))]
    rows += [("accepted", side["accepted"]), ("finished", side["finished"]), ("runs", side["runs"])]
    rows += [(WORDS[name], n) for name, n in found["at_fault"].items()]
    rows += [
        ("recovery p50 / p99 / max", f"{recovery['p50']} / {recovery['p99']} / {recovery['max']} s"),
        ("not mended", recovery["not_mended"]),
        ("repeated runs", side["repeated"]),
        ("of them handed back uncounted", side["suspects"]),
        ("counted as lost before they were seen to begin", side["unseen"]),
        ("gone on behind a cut link beside the next run, results refused", side["behind_a_cut"]),
        ("turns that made room, runs that went on from a checkpoint", f"{side['yields']}, {side['resumed']}"),
        ("firings of schedules", side["fires"]),
    ]
    for name, words in (("submissions", "submissions"), ("status_calls", "status calls")):
        tally = found[name]
        rows += [
            (f"{words}: succeeded within 10 s", f"{tally['succeeded_percent']} % of {tally['asked']}"),
            (f"{words}: at the first try", f"{tally['at_once_percent']} %"),
            (f"{words}: longest outage", f"{tally['longest_outage_s']} s"),
        ]
    rows += [("processes that ended by themselves", _crashes(found["crashes"]))]
    rows += [(bar, "met" if met else "MISSED") for bar, met in found["bars"].items()]
    rows += [("seconds in all", found["seconds"]), ("verdict", "PASSED" if found["passed"] else "FAILED")]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _crashes(crashes: dict[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in sorted(crashes.items())) or "none"
