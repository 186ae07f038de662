"""What is kept of live rounds: an account of them, and on request records to decide again and a shadow's account."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.types import Decision, Plan, Snapshot
from scheduler_ext.round import replay
from scheduler_ext.round.shadow import Shadow
from scheduler_ext.round.tally import Tally
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.ledger.round_store import PgRoundStore

log = logging.getLogger(__name__)

FLUSH_S = 2.0
MAX_RECORDED = 256 << 20
"""The most bytes of recorded rounds; the oldest go first."""
RECORDED_S = 86_400.0
"""Recorded rounds older than this are deleted."""
TELL_S = 1.0
"""How often the account of the rounds is written, while it changes."""
TELL = "UPDATE slackwater_tasks_leader SET rounds = %s WHERE cell = %s AND holder = %s"
ADD = """
INSERT INTO slackwater_tasks_shadowuse AS s (cell, first, second, tenant_id, started, waited_s, sooner, sooner_s, later, later_s,
    since, updated_at)
SELECT %(cell)s, %(first)s, %(second)s, u.*, clock_timestamp(), clock_timestamp()
FROM unnest(%(tenants)s::bigint[], %(started)s::bigint[], %(waited_s)s::float8[], %(sooner)s::bigint[],
    %(sooner_s)s::float8[], %(later)s::bigint[], %(later_s)s::float8[]) AS u
ON CONFLICT (cell, first, second, tenant_id) DO UPDATE SET
    started = s.started + excluded.started, waited_s = s.waited_s + excluded.waited_s,
    sooner = s.sooner + excluded.sooner, sooner_s = s.sooner_s + excluded.sooner_s,
    later = s.later + excluded.later, later_s = s.later_s + excluded.later_s, updated_at = clock_timestamp()
"""
COLUMNS = ("started", "waited_s", "sooner", "sooner_s", "later", "later_s")


class RoundWatcher:
    """Gets every round of the dispatcher after its claims."""

    def __init__(self, conf: SchedulerConf, store: PgRoundStore) -> None:
        """The policies are those that ``store`` says are chosen."""
        self.conf = conf
        self.store = store
        self.recorder = Recorder(conf.record_folder) if conf.record_folder else None
        self._shadow: Shadow | None = None
        self._names = ("", "", "")
        self._flushed = time.monotonic()
        self._tally, self._written, self._told = Tally(conf), float("-inf"), ""

    def __call__(self, snapshot: Snapshot, plan: Plan, won: Sequence[Decision], seconds: float) -> None:
        """Count the round, record it, and let the shadow decide it."""
        self._count(snapshot, plan, won, seconds)
        chosen = self.store.chosen()
        if self.recorder is not None and (plan.decisions or plan.left):
            self.recorder.write(replay.record(snapshot, self.conf, chosen.share.name, chosen.share.parameters, plan))
        if chosen.shadow is None:
            self._flush(self.store.db)
            self._shadow = None
            return
        names = (chosen.share.name, chosen.shadow.name, repr(chosen.shadow.policy))
        if self._shadow is None or names != self._names:
            self._flush(self.store.db)
            self._shadow, self._names = Shadow(self.conf, chosen.shadow.policy), names
        if snapshot.lines:
            self._shadow.watch(snapshot, plan)
        if time.monotonic() - self._flushed >= FLUSH_S:
            self._flush(self.store.db)

    def _count(self, snapshot: Snapshot, plan: Plan, won: Sequence[Decision], seconds: float) -> None:
        """Count the round, and write the account if it has changed: an idle cell writes nothing."""
        self._tally.count(snapshot, plan, won, seconds)
        if (now := time.monotonic()) - self._written < TELL_S:
            return
        self._written = now
        account = self._tally.take(self.store.reference.plans, self.store.ahead.claimed)
        told = json.dumps({**account, "rounds": 0, "took": 0, "took_s": 0})
        if told != self._told:
            self._told = told
            self.store.db.conn.execute(TELL, (json.dumps(account), self.conf.cell, self.store.holder))

    def _flush(self, db: Database) -> None:
        """Add what the shadow has counted to its table."""
        self._flushed = time.monotonic()
        sums = self._shadow.take() if self._shadow is not None else {}
        if not sums:
            return
        columns = {name: [getattr(each, name) for each in sums.values()] for name in COLUMNS}
        names = {"cell": self.conf.cell, "first": self._names[0], "second": self._names[1]}
        db.conn.execute(ADD, {**names, "tenants": list(sums), **columns})


class Recorder:
    """Rounds in files of a folder, one a line; together within a size limit, the oldest going first."""

    FILES = 8

    def __init__(self, folder: str, *, max_bytes: int = MAX_RECORDED, keep_s: float = RECORDED_S) -> None:
        self.folder = Path(folder)
        self.most = max_bytes
        self.age_s = keep_s
        self._path: Path | None = None
        self._size = 0
        self._failed = False

    def write(self, line: bytes) -> None:
        """Append one round. A folder that cannot be written is logged once, and stops no round."""
        try:
            if self._path is None or self._size + len(line) > self.most // self.FILES:
                self._turn()
            assert self._path is not None
            with self._path.open("ab") as file:
                file.write(line)
            self._size += len(line)
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("rounds cannot be recorded: %s", error)
            self._failed = True

    def _turn(self) -> None:
        """Begin a new file, and delete what is too old or too much."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path, self._size = self.folder / f"rounds-{time.time_ns():020}.jsonl", 0
        kept = sorted(self.folder.glob("rounds-*.jsonl"), reverse=True)
        total, oldest = 0, time.time() - self.age_s
        for number, path in enumerate(kept, start=1):
            found = path.stat()
            total += found.st_size
            if number >= self.FILES or total > self.most or found.st_mtime < oldest:
                path.unlink(missing_ok=True)
