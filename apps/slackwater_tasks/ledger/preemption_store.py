"""The ledger as pre-emption uses it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from scheduler_ext.core.types import LineView, TaskView
from scheduler_ext.policies.base import OrderPolicy, RankInput
from scheduler_ext.preemption.choose import Ask, Turn
from scheduler_ext.preemption.controller import TurnStore
from slackwater_tasks.ledger import sql, transitions
from slackwater_tasks.ledger.active_policies import Chosen
from slackwater_tasks.ledger.fronts import HEADS_PER_LINE
from slackwater_tasks.ledger.round_store import PgRoundStore

MAX_TURNS = 1_000
"""How many tasks are looked at, the longest running first; more than a few are never asked at once."""


class PgTurnStore(TurnStore):
    """:class:`scheduler_ext.preemption.controller.TurnStore` on PostgreSQL, over the dispatcher's own connection."""

    def __init__(self, rounds: PgRoundStore) -> None:
        """``rounds``: the same dispatcher's round store."""
        self.rounds = rounds
        self._chosen: Chosen | None = None
        self._slicing = False

    def turns(self, *, idempotent: bool) -> list[Turn]:
        params = {"idempotent": idempotent, "limit": MAX_TURNS}
        rows = self.rounds.db.conn.execute(sql.preemption.TURNS, params).fetchall()
        return [turn for turn in map(self._turn, rows) if turn is not None]

    def _turn(self, row: Sequence[Any]) -> Turn | None:
        (task_id, fence, line_id, node_id, group, rank, handler_id, by_itself, priority, mutex, limit, latest, ran_s,
         declared, level, asked, idempotent, submitted, cap_ms, kind_number, path_us, work_us) = row  # fmt: skip
        line = self._line(line_id)
        if line is None:
            return None
        kind, learnt = self.rounds.reference.learnt_of(line.tenant_id, kind_number, handler_id, by_itself)
        task = TaskView(
            task_id=task_id, line_id=line_id, fence=fence, rank=(group, rank), kind=kind, handler_id=handler_id,
            priority=priority, submitted_at=submitted, latest_start=latest,
            expected_us=learnt.mean_us if learnt else None,
            long_us=min(learnt.long_us, cap_ms * 1000) if learnt else cap_ms * 1000,
            alone=by_itself, mutex_key=mutex, mutex_limit=limit,
        )  # fmt: skip
        ranked = RankInput(
            arrived_us=math.floor(submitted * 1e6), latest_start_us=None if latest is None else int(latest * 1e6),
            expected_us=None, cap_us=cap_ms * 1000, priority=priority, level=level, path_us=path_us, work_us=work_us,
        )  # fmt: skip
        return Turn(
            task=task, line=line, node_id=node_id, ran_s=max(0.0, ran_s), checkpoints=declared,
            idempotent=idempotent, level=level, ranked=ranked, asked=bool(asked),
        )  # fmt: skip

    def _line(self, line_id: int) -> LineView | None:
        """A line of the cell without its tasks; ``None`` while it is unknown."""
        info = self.rounds.reference.lines.get(line_id)
        if info is None or info.cell != self.rounds.conf.cell:
            return None
        return self.rounds.line_of(line_id, info)

    def waiting(self) -> tuple[LineView, ...]:
        return self.rounds.view(HEADS_PER_LINE).lines

    def ask(self, epoch: int, asks: Sequence[Ask]) -> set[str]:
        rounds = self.rounds
        return transitions.ask_if_running(rounds.db.conn, rounds.conf, epoch, rounds.holder, asks)

    def order_of(self, line: LineView) -> OrderPolicy:
        return self.rounds.chosen().order_of(line.tenant_id, line.line_id)

    def slicing(self) -> bool:
        chosen = self.rounds.chosen()
        if chosen is not self._chosen:
            orders = (chosen.order, *chosen.by_tenant.values(), *chosen.by_line.values())
            self._chosen, self._slicing = chosen, any(hasattr(order, "level_of") for order in orders)
        return self._slicing

    def serve(self, line_id: int, level: int) -> None:
        self.rounds.db.conn.execute(sql.preemption.SERVING, (level, line_id, level))
