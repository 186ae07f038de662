"""What the database knows of run times: the keys of a task in SQL, and what is learnt under keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from scheduler_ext.core.run_times import LEARNT_FROM, VARYING, RunTimes, script_keys
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.ledger.sql.snapshot import RUN_TIMES_OF
from slackwater_tasks.spec import TaskSpec

SCRIPT_KEY: Final = "'script:' || left(coalesce(nullif(t.script_sha256, ''), t.script_path), 64)"
NAME_KEY: Final = f"CASE WHEN t.name <> '' THEN left('name:' || regexp_replace(t.name, '{VARYING}', '#', 'g'), 200) END"
KEYS: Final = (
    f"CASE t.handler WHEN '' THEN array_remove(ARRAY[{SCRIPT_KEY}, {NAME_KEY}], NULL) ELSE ARRAY[t.handler] END"
)
"""The keys under which the run times of such tasks are learnt, for a row t of tasks: see :func:`keys_of`."""
OF_TENANT: Final = f"{RUN_TIMES_OF} AND tenant_id = %s"


def keys_of(spec: TaskSpec) -> list[str]:
    """The keys under which the run times of such tasks are learnt, the nearest first."""
    return [spec.handler] if spec.handler else script_keys(spec.script, spec.script_path, spec.name)


def run_times(keys: Iterable[Sequence[str]], *, least: int = 1) -> RunTimes:
    """What is learnt of tasks with these keys; ``least``: see :class:`~scheduler_ext.core.run_times.RunTimes`."""
    return RunTimes(fetch_all(RUN_TIMES_OF, [LEARNT_FROM, _distinct(keys)]), least=least)


def of_tenant(tenant_id: int, keys: Sequence[Sequence[str]]) -> list[int | None]:
    """The mean run time (microseconds) of each of a tenant's tasks by its own runs; ``None`` where nothing is learnt."""
    known = RunTimes(fetch_all(OF_TENANT, [LEARNT_FROM, _distinct(keys), tenant_id]))
    found = (known.of(tenant_id, of_task) for of_task in keys)
    return [learnt.mean_us if learnt is not None else None for learnt in found]


def _distinct(keys: Iterable[Sequence[str]]) -> list[str]:
    return list({key for of_task in keys for key in of_task})
