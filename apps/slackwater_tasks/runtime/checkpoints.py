"""Checkpoints in the ledger: published in one statement, fenced, checksummed, the latest two kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from scheduler_ext.core.work import Format, Saved
from scheduler_ext.task.checkpoints import CheckpointTooLarge, digest
from scheduler_ext.task.effects import AttemptReplaced
from slackwater_tasks.ledger import sql
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.runtime.attempt import Attempt


class PgCheckpoints(Attempt):
    """The checkpoints of one attempt."""

    def load_checkpoint(self) -> Saved | None:
        rows = self.db.repeatable(
            lambda conn: conn.execute(sql.checkpoints.LOAD, (self.task.task_id, self.task.tenant_id)).fetchall(),
            single=True,
        )
        for place, (number, kind, content, checksum) in enumerate(rows):
            found = bytes(content)
            if digest(found) == checksum:
                return Saved(number=number, format=Format(kind), content=found)
            self._pass_over(number, last=place == len(rows) - 1)
        return None

    def _pass_over(self, number: int, *, last: bool) -> None:
        instead = "it starts anew" if last else "the one before it is used"
        params = {
            "id": self.task.task_id, "number": number, "fence": self.task.fence, "actor": "checkpoints",
            "reason": f"checkpoint {number} is damaged: {instead}",
        }  # fmt: skip
        self.db.repeatable(lambda conn: conn.execute(sql.checkpoints.DAMAGED, params), single=True)

    def save_checkpoint(self, kind: Format, content: bytes) -> int:
        params = {
            "id": self.task.task_id, "fence": self.task.fence, "format": int(kind), "content": content,
            "sha256": digest(content), "size": len(content),
        }  # fmt: skip
        row = self.db.repeatable(lambda conn: conn.execute(sql.checkpoints.SAVE, params).fetchone(), single=True)
        if row is None:
            self._refuse_checkpoint(len(content))
        assert row is not None
        return int(row[0])

    def _refuse_checkpoint(self, size: int) -> None:
        row = self.db.conn.execute(sql.checkpoints.LIMIT_OF, (self.task.tenant_id,)).fetchone()
        if row is not None and size > row[0]:
            raise CheckpointTooLarge(f"the checkpoint has {size} bytes, the plan allows {row[0]}")
        raise AttemptReplaced("this attempt has lost its task: its checkpoint is not kept")

    def note_checkpoint(self, reason: str) -> None:
        params = {"id": self.task.task_id, "fence": self.task.fence, "actor": "checkpoints", "reason": reason[:300]}
        self.db.repeatable(lambda conn: conn.execute(sql.checkpoints.NOTE, params), single=True)


def declare(cur: Any, tenant_id: int, tasks: Sequence[tuple[UUID, int]]) -> None:
    """Note that stored tasks declare checkpoints, each with its first level (see the order policies)."""
    if tasks:
        cur.execute(sql.checkpoints.DECLARE, (tenant_id, [t[0] for t in tasks], [t[1] for t in tasks]))


def run_again(cur: Any, ids: Sequence[UUID], *, anew: Sequence[UUID]) -> None:
    """Reset the turns of tasks that are live again. ``anew``: those that start from nothing; others resume.

    ``anew``: those that start from nothing; the others go on from what they saved.
    """
    cur.execute(sql.checkpoints.ANEW, (list(ids),))
    if anew:
        cur.execute(sql.checkpoints.FORGET, (list(anew),))


def forget_ended(db: Database, limit: int) -> int:
    """Delete checkpoints of tasks that have ended and are no dead letters; returns how many."""
    return int(db.conn.execute(sql.checkpoints.DELETE_ENDED, (limit,)).rowcount)
