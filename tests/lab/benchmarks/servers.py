"""The servers of a run: embedded ones in a folder of their own, or given ones that hold nothing else."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis

from slackwater.local.servers import EmbeddedPostgres, EmbeddedRedis, ServerError, socket_folder
from tests.lab.benchmarks.account import name_of, parent_of

MARK = "slackwater-bench"
"""In a given Redis database this key says that its contents are a benchmark's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run happens."""

    folder: Path
    database_url: str
    redis_url: str
    pids: Mapping[str, int]
    """The servers' processes, where they run on this machine."""
    versions: str

    def environment(self) -> dict[str, str]:
        """For processes of the platform: nothing of a platform that runs here gets through."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLACKWATER_")}
        root = Path(__file__).resolve().parents[3]
        return {
            **kept,
            "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded",
            "SLACKWATER_DATABASE_URL": self.database_url,
            "SLACKWATER_REDIS_URL": self.redis_url,
            "SLACKWATER_VAR": str(self.folder),
            "SLACKWATER_LOG_LEVEL": "WARNING",
            "SLACKWATER_HANDLERS": "tests.lab.benchmarks.handlers",
            "PYTHONPATH": os.pathsep.join([str(root), str(root / "platform"), str(root / "apps")]),
            "PYTHONWARNINGS": "ignore",
        }


@contextlib.contextmanager
def servers(below: Path, database_url: str, redis_url: str) -> Iterator[Place]:
    """Servers for one or several runs. Embedded ones are durable, and gone at the end.

    Raises ServerError when a given one is not meant for benchmarks.
    """
    below.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="run-", dir=below)))
        sockets = socket_folder(folder)
        if database_url:
            _require_named(database_url)
        else:
            postgres = EmbeddedPostgres(folder / "postgres", sockets, database="bench")
            database_url = stack.enter_context(postgres).url
        if redis_url:
            _require_marked(redis_url)
        else:
            redis_url = stack.enter_context(EmbeddedRedis(folder / "redis", sockets)).url
        yield _place(folder, database_url, redis_url)


def _place(folder: Path, database_url: str, redis_url: str) -> Place:
    with psycopg.connect(database_url) as conn:
        postgres = parent_of(conn.info.backend_pid)
        version = conn.info.server_version
    with redis.Redis.from_url(redis_url) as client:
        said = client.info("server")
    found = {"postgres": postgres, "redis": int(said["process_id"])}
    pids = {name: pid for name, pid in found.items() if _is_local(name, pid)}
    kind = said.get("server_name", "redis")
    number = said.get(f"{kind}_version", said["redis_version"])
    versions = f"PostgreSQL {version // 10_000}.{version % 10_000}, {kind} {number}"
    return Place(folder=folder, database_url=database_url, redis_url=redis_url, pids=pids, versions=versions)


def _is_local(name: str, pid: int) -> bool:
    """A pid that a server gives is only of use when it means the same process here."""
    known = {"postgres": ("postgres",), "redis": ("redis", "valkey")}[name]
    return pid > 1 and name_of(pid).startswith(known)


def _require_named(url: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(url).get("dbname") or ""
    if "bench" not in str(name):
        raise ServerError(
            f"the benchmark empties its database, so the name must contain 'bench'; this one is called {name!r}"
        )


def _require_marked(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        if client.dbsize() and not client.exists(MARK):
            raise ServerError(
                f"the benchmark empties its Redis database; {urlsplit(url).path or '/0'} holds "
                f"{client.dbsize()} keys of others. Give one that is empty"
            )
        client.set(MARK, "1")
