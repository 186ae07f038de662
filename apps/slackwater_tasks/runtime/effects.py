"""The keys of effects that happen once, in the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connection, transaction
from psycopg.errors import LockNotAvailable

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import EffectState
from scheduler_ext.core.work import Claim, Effect
from scheduler_ext.task.effects import AttemptReplaced, UnderWay
from slackwater_conf.database import is_elsewhere
from slackwater_tasks.runtime.attempt import Attempt

# Both inserts also check that this attempt still holds its task: one that was replaced may begin nothing more.
# A repeat under way is waited for by the database: its transaction holds the key.
INSERT = named("""
INSERT INTO slackwater_tasks_effect (tenant_id, key, state, task_id, fence, done_at)
SELECT %(tenant)s, %(key)s, %(state)s, l.task_id, l.fence, CASE WHEN %(state)s = :effect.DONE THEN clock_timestamp() END
FROM slackwater_tasks_livetask l WHERE l.task_id = %(task)s AND l.fence = %(fence)s AND l.state = :state.RUNNING
ON CONFLICT DO NOTHING
""")
FOUND = named("""
SELECT e.state, e.result, e.task_id::text, e.fence,
       l.task_id IS NOT NULL AND NOT (e.task_id = %(task)s AND e.fence = %(fence)s)
FROM slackwater_tasks_effect e
    LEFT JOIN slackwater_tasks_livetask l ON l.task_id = e.task_id AND l.fence = e.fence AND l.state = :state.RUNNING
WHERE e.tenant_id = %(tenant)s AND e.key = %(key)s
""")
TAKE_OVER = named("""
UPDATE slackwater_tasks_effect e SET task_id = l.task_id, fence = l.fence, claimed_at = clock_timestamp()
FROM slackwater_tasks_livetask l WHERE l.task_id = %(task)s AND l.fence = %(fence)s AND l.state = :state.RUNNING
    AND e.tenant_id = %(tenant)s AND e.key = %(key)s AND e.state = :effect.CLAIMED
    AND e.task_id = %(old_task)s AND e.fence = %(old_fence)s
""")
SETTLE = named("""
UPDATE slackwater_tasks_effect SET state = :effect.DONE, done_at = clock_timestamp(), result = %(result)s::jsonb
WHERE tenant_id = %(tenant)s AND key = %(key)s AND state = :effect.CLAIMED AND task_id = %(old_task)s AND fence = %(old_fence)s
""")
FREE = named("""
DELETE FROM slackwater_tasks_effect
WHERE tenant_id = %(tenant)s AND key = %(key)s AND state = :effect.CLAIMED AND task_id = %(task)s AND fence = %(fence)s
""")
SET_RESULT = "UPDATE slackwater_tasks_effect SET result = %s::jsonb WHERE tenant_id = %s AND key = %s"
HOLDS = named("SELECT 1 FROM slackwater_tasks_livetask WHERE task_id = %s AND fence = %s AND state = :state.RUNNING")


class PgEffects(Attempt):
    """The keys of effects as one running attempt uses them."""

    @contextmanager
    def effect_inside(self, key: str) -> Iterator[Effect]:
        """A transaction on Django's connection, with which the key commits or is rolled back."""
        if is_elsewhere():
            raise InvalidInput("the ledger is in another database: an effect cannot commit with it", field="outside")
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
        with transaction.atomic():
            with connection.cursor() as cur:
                self._insert(cur, key)
                first = cur.rowcount == 1
                result = None
                if not first:
                    cur.execute(FOUND, self._params(key))
                    result = self._existing(cur.fetchone())
            effect = Effect(key, first, result, connection.connection)
            yield effect
            if first and effect.result is not None:
                with connection.cursor() as cur:
                    cur.execute(SET_RESULT, (_json(effect.result), self.task.tenant_id, key))

    def _insert(self, cur: Any, key: str) -> None:
        try:
            cur.execute(INSERT, self._params(key, state=int(EffectState.DONE)))
        except OperationalError as error:
            if isinstance(error.__cause__, LockNotAvailable):
                raise UnderWay(f"the effect {key!r} is being done by another task for too long", field="key") from None
            raise

    def _existing(self, row: Any) -> Any:
        """The result of a key that exists already."""
        if row is None:
            raise self._replaced()
        if row[0] == EffectState.CLAIMED:
            raise InvalidInput("is the key of an effect outside of the database, and not done", field="key")
        return json.loads(row[1]) if row[1] is not None else None  # Django's connections leave JSON as text

    def claim_effect(self, key: str, *, over: Claim | None = None) -> Claim:
        """Claim a key, committed at once."""
        conn = self.db.conn
        if over is None:
            won = conn.execute(INSERT, self._params(key, state=int(EffectState.CLAIMED))).rowcount == 1
        else:
            params = self._params(key, old_task=over.task_id, old_fence=over.fence)
            won = conn.execute(TAKE_OVER, params).rowcount == 1
        if won:
            return Claim(won=True, task_id=self.task.task_id, fence=self.task.fence)
        held = conn.execute(HOLDS, (self.task.task_id, self.task.fence)).fetchone()
        row = conn.execute(FOUND, self._params(key)).fetchone()
        if held is None:
            raise self._replaced()
        if row is None:  # it was given back at this moment
            return self.claim_effect(key) if over is None else Claim(won=False)
        return Claim(
            won=False, done=row[0] == EffectState.DONE, result=row[1], task_id=row[2], fence=row[3], alive=row[4]
        )

    def settle_effect(self, key: str, result: Any, *, over: Claim | None = None) -> None:
        owner = (over.task_id, over.fence) if over else (self.task.task_id, self.task.fence)
        params = self._params(key, result=_json(result), old_task=owner[0], old_fence=owner[1])
        self.db.repeatable(lambda conn: conn.execute(SETTLE, params))

    def free_effect(self, key: str) -> None:
        self.db.repeatable(lambda conn: conn.execute(FREE, self._params(key)))

    def _params(self, key: str, **more: Any) -> dict[str, Any]:
        task = self.task
        return {"tenant": task.tenant_id, "key": key, "task": task.task_id, "fence": task.fence, **more}

    def _replaced(self) -> AttemptReplaced:
        return AttemptReplaced(f"attempt {self.task.attempt} of the task {self.task.task_id} was replaced by another")


def _json(value: Any) -> str | None:
    if value is None:
        return None
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"cannot be written as JSON: {error}", field="result") from None
    if "\\u0000" in text:
        raise InvalidInput("must not contain the NUL character", field="result")
    return text
