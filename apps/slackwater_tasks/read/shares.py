"""How each cell stands and what its rounds did: one account for the live page, ``/metrics`` and the commands.

Unscoped, because operators see all tenants. What it costs grows with what is in flight and the active lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from scheduler_ext.round.standing import Standing, standing
from scheduler_ext.round.tally import WHY
from slackwater_conf import conf
from slackwater_tasks.ledger.connection import Borrowed, fetch_all
from slackwater_tasks.ledger.round_store import PgRoundStore

MAX_TENANTS: Final = 100
"""How many tenants of a cell are reported: those that hold most, or are owed most."""
CELLS: Final = """
SELECT cell FROM slackwater_tenants_tenant UNION
SELECT cell FROM slackwater_resources_node WHERE state IN ('starting', 'active', 'draining') ORDER BY 1
"""
ROUNDS: Final = """
SELECT cell, rounds::text FROM slackwater_tasks_leader WHERE rounds IS NOT NULL AND expires_at > clock_timestamp() ORDER BY 1
"""


def standings() -> dict[str, tuple[str, Standing]]:
    """The name of each cell's share policy, and how the cell stands under it."""
    found = {}
    borrowed: Any = Borrowed()
    for (cell,) in fetch_all(CELLS):
        store = PgRoundStore(replace(conf().scheduler, cell=cell), "shares", borrowed)
        snapshot, share = store.view(1), store.chosen().share
        found[cell] = (share.name, standing(snapshot, share.policy))
    return found


def shares(waited_for: Mapping[tuple[str, int], float] | None = None) -> list[dict[str, Any]]:
    """Each cell: policy, utilization, Jain's index, and its tenants' shares with their names, most first.

    ``waited_for``: by cell and tenant the part that its ready work asks for, where that was counted.
    """
    asked = waited_for or {}
    names = dict(fetch_all("SELECT id, slug FROM slackwater_tenants_tenant"))
    return [
        {
            "cell": cell, "policy": policy, "utilization": found.utilization, "jain": found.jain,
            "tenants": [
                {"tenant": names.get(number, ""), "held": each.held, "entitled": each.entitled, "waits": each.waits,
                 "waited_for": asked.get((cell, number))}
                for number, each in sorted(
                    found.tenants.items(), key=lambda item: (-max(item[1].held, item[1].entitled), item[0])
                )[:MAX_TENANTS]
            ],
        }
        for cell, (policy, found) in standings().items()
    ]  # fmt: skip


def rounds() -> list[dict[str, Any]]:
    """For each cell with a leader, the account of its rounds as last written, with reasons in words."""
    return [{"cell": cell, **json.loads(text), "says": WHY} for cell, text in fetch_all(ROUNDS)]
