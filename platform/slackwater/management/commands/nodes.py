"""List the nodes, drain one, give it work again."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from scheduler_ext.core.errors import InvalidInput, NotFound
from slackwater.management.console import PlatformCommand, find_tenant
from slackwater_monitoring.scaling_calls import calls
from slackwater_resources import services
from slackwater_resources.models import Node
from slackwater_tasks.read import overview
from slackwater_tasks.read.autoscaling import by_cell, by_labels, wanted

ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ACTIONS = {"drain": services.drain_node, "resume": services.activate_node}
ANSWERS = {
    "drain": "drains: what has not begun goes back, what saves checkpoints yields, the rest is finished",
    "resume": "is given work again",
}


class Command(PlatformCommand):
    help = (
        "List the nodes of all cells, or of a tenant's, with their capacity and what is in flight on each. "
        "drain NODE: give it nothing new, hand back what has not begun, let what has checkpoints go on elsewhere. "
        "resume NODE: give it work again. --wanted: how many workers the waiting work asks for, down to none."
    )
    all_tenants = True
    watches = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("action", nargs="?", choices=["list", *ACTIONS], default="list",
                            help="list them (what is done without it), or drain or resume one")  # fmt: skip
        parser.add_argument("node", nargs="?", help="name or id, for drain and resume")
        parser.add_argument("--wanted", action="store_true", help="instead, how many workers the work asks for")
        parser.add_argument("--all", action="store_true", help="also those that left or were lost")

    def run(self, options: dict[str, Any]) -> None:
        if options["tenant"] and (options["action"] in ACTIONS or options["wanted"]):
            raise InvalidInput("goes with the list: nodes are no tenant's own", field="--tenant")
        if options["action"] in ACTIONS:
            self.once(options)
            node = _find(options["node"])
            ACTIONS[options["action"]](node)
            shown = {"id": node.incarnation, "name": node.name, "state": node.state}
            self.answer(shown, f"{node} {ANSWERS[options['action']]}")
            return
        if options["wanted"]:
            self._wanted()
            return
        tenant = find_tenant(options["tenant"]) if options["tenant"] else None
        rows = [row for row in overview.all_nodes(gone=options["all"]) if tenant is None or row["cell"] == tenant.cell]
        self.answer_table(
            rows,
            "Nodes",
            ["id", "cell", "name", "host", "state", "CPU", "memory", "slots", "labels", "in flight", "heartbeat"],
            [(r["id"], r["cell"], r["name"], r["hostname"], r["state"], f"{r['capacity'].get('cpu_milli', 0) / 1000:g}",
              f"{r['capacity'].get('memory_mb', 0)} MiB", " ".join(f"{k}:{n}" for k, n in r["slots"].items()),
              " ".join(r["labels"]), r["in_flight"], r["heartbeat_at"]) for r in rows],
            empty="No node is registered; start a worker.",
        )  # fmt: skip

    def _wanted(self) -> None:
        found = wanted()
        cells = by_cell(found)
        names = ("cell", "tier", "labels", "ready", "in_flight_slots", "waiting_slots", "per_worker", "workers")
        rows = [[getattr(one, name) for name in names] for one in found]
        if self.as_json:
            self.show(
                {
                    "cells": [{"cell": cell, "workers": count} for cell, count in cells.items()],
                    "labels": [
                        {"cell": cell, "labels": labels, "workers": count}
                        for (cell, labels), count in by_labels(found).items()
                    ],
                    "tiers": [dict(zip(names, row, strict=True)) for row in rows],
                    "calls": calls(),
                }
            )
            return
        told = [[round(value, 3) if isinstance(value, float) else value for value in row] for row in rows]
        self.show_table("Wanted workers, by tier", [name.replace("_", " ") for name in names], told, empty="No cell.")
        sets = [(*key, count) for key, count in by_labels(found).items()]
        if any(labels for _, labels, _ in sets):
            self.show_table("By labels", ["cell", "labels", "workers"], sets, empty="")
        self.show_table("In all", ["cell", "workers"], list(cells.items()), empty="No cell.")
        if made := calls():
            columns = ["cell", "labels", "action", "wanted", "have", "called_s_ago", "calls", "failures", "error"]
            told = [[call[name] if name != "called_s_ago" else round(call[name]) for name in columns] for call in made]
            self.show_table(
                "Last calls for more or fewer", [name.replace("_", " ") for name in columns], told, empty=""
            )


def _find(given: str | None) -> Node:
    """The node of that id, or the one incarnation of that name that is there."""
    if not given:
        raise InvalidInput("say which: its name or its id", field="node")
    there = Node.objects.filter(state__in=[Node.State.STARTING, Node.State.ACTIVE, Node.State.DRAINING])
    found = list(there.filter(incarnation=UUID(given)) if ID.fullmatch(given) else there.filter(name=given))
    if not found:
        raise NotFound(f"there is no node {given!r} at work", field="node")
    if len(found) > 1:
        raise InvalidInput(
            f"{len(found)} cells have a node of that name: give its id, one of {', '.join(str(n.incarnation) for n in found)}",
            field="node",
        )
    return found[0]
