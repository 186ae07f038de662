"""A PostgreSQL with a synchronous standby, as processes of this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import psycopg

from slackwater.local.process import give_to_server, tied, unprivileged
from slackwater.local.servers import EmbeddedPostgres, socket_folder
from slackwater.local.servers.postgres import PORT, USER, programs
from tests.support.waiting import wait_until

IN_STEP = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"


class PostgresPair:
    """A primary that confirms only what its standby has written too; a context manager.

    ``url`` names both: who connects gets the one that takes writes.
    """

    def __init__(self, folder: Path) -> None:
        self.primary, self.standby = (
            EmbeddedPostgres(folder / name, socket_folder(folder / f"at-{name}"), durable=True)
            for name in ("first", "second")
        )
        self._owned = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as owned:
            self._start(owned)
            self._owned = owned.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owned.close()

    @property
    def url(self) -> str:
        """The libpq URL of the pair."""
        hosts = ",".join(quote(str(server.run_dir)) for server in (self.primary, self.standby))
        return f"postgresql://{USER}:{self._password}@/{USER}?host={hosts}&port={PORT},{PORT}"

    def kill_primary(self) -> None:
        """Kill -9 the primary."""
        pid = self.primary.process.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def promote(self) -> None:
        """Make the standby the primary, as whoever watches over such a pair does."""
        with psycopg.connect(self.standby.url, autocommit=True) as conn:
            conn.execute("SELECT pg_promote()")

    def ask(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        """Rows from the one that takes writes."""
        with psycopg.connect(self.url, target_session_attrs="read-write") as conn:
            return conn.execute(query, params).fetchall()

    @property
    def _password(self) -> str:
        return self.primary.data_dir.with_suffix(".password").read_text().strip()

    def _start(self, owned: ExitStack) -> None:
        owned.enter_context(self.primary)
        self._copy()
        owned.enter_context(self.standby)
        with psycopg.connect(self.primary.url, autocommit=True) as conn:
            conn.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            conn.execute("SELECT pg_reload_conf()")
        wait_until(lambda: self.ask(IN_STEP), timeout=30, message="the standby is in step")

    def _copy(self) -> None:
        """The standby's data: a copy of the primary's, and where it goes on from there."""
        first, second = self.primary.data_dir, self.standby.data_dir
        shutil.copy(first.with_suffix(".password"), second.with_suffix(".password"))
        second.mkdir(mode=0o700)
        give_to_server(second, unprivileged())
        place = ["-h", str(self.primary.run_dir), "-p", str(PORT), "-U", USER, "-D", str(second)]
        subprocess.run(
            tied([str(programs() / "pg_basebackup"), *place, "-R", "-c", "fast"], run_as=unprivileged()),
            env={**os.environ, "PGPASSWORD": self._password}, cwd="/", check=True, capture_output=True, timeout=60,
        )  # fmt: skip
