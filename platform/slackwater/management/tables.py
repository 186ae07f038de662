"""Tables that several commands show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slackwater.management.console import PlatformCommand, ago


def show_tenants(command: PlatformCommand, rows: Sequence[dict[str, Any]]) -> None:
    """Tenants with their work and their shares."""
    command.show_table(
        "Tenants", ["tenant", "plan", "weight", "paused", "unfinished", "queued", "running", "holds", "by weight",
         "waits for"],
        [(r["tenant"], r["plan"], r["weight"], r["paused"], r["unfinished"], r["queued"], r["running"],
          percent(r["held_percent"]), percent(r["entitled_percent"]), percent(r["waited_for_percent"])) for r in rows],
        empty="There are no tenants.",
    )  # fmt: skip


def show_running(command: PlatformCommand, rows: Sequence[dict[str, Any]]) -> None:
    """What runs, the longest first."""
    command.show_table(
        "Running, the longest first", ["id", "tenant", "name", "what", "node", "for", "cap"],
        [(r["id"], r["tenant"], r["name"], r["handler"] or r["script"], r["node"], ago(r["running_s"]), ago(r["cap_s"]))
         for r in rows],
        empty="Nothing runs.",
    )  # fmt: skip


def percent(value: float | None) -> str:
    """A share as people read it."""
    return "–" if value is None else f"{value:g} %"
