"""Where large content lies: in the row that names it, or as an object in a folder or bucket (setting
``ARTIFACTS_URL``).

An object is written once, before the transaction that names it, under a name that no other ever has; so what a row names is
whole. Objects lie below the folder of what owns them (a task, an upload). When that goes, its folder is noted in the same
transaction and emptied later, with whatever a broken-off write left there: nothing is lost, and nothing stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from scheduler_ext.core.errors import ConfigurationError, Unavailable
from slackwater_conf import conf
from slackwater_tasks.ledger.connection import Database

PIECE: Final = 1_048_576
"""Bytes read at once."""


class Content(NamedTuple):
    """Content as its row holds it: inline, or as the object of this name."""

    here: bytes | None
    key: str


@lru_cache(maxsize=4)
def _store(url: str, process: int) -> Any:
    """The folder or bucket; one per process, because its threads do not survive a fork."""
    try:
        from obstore.store import from_url
    except ImportError:
        raise ConfigurationError(
            "SLACKWATER[\"ARTIFACTS_URL\"] needs the package obstore: pip install 'slackwater[objects]'"
        ) from None
    if url.startswith("file:"):
        Path(url.removeprefix("file://")).mkdir(mode=0o700, parents=True, exist_ok=True)
    return from_url(url)


def _ask(call: str, *args: Any, **options: Any) -> Any:
    """Call the store; ``Unavailable`` if it does not answer properly."""
    import obstore
    from obstore.exceptions import BaseError

    store = _store(conf().artifacts_url, os.getpid())
    try:
        return getattr(obstore, call)(store, *args, **options)
    except (BaseError, OSError) as error:
        raise Unavailable(f"the store of artifacts does not answer: {type(error).__name__}") from error


def keep(folder: str, content: bytes) -> Content:
    """Keep ``content`` in ``folder``; a row must name it, in a transaction that begins afterwards."""
    if not conf().artifacts_url:
        return Content(content, "")
    key = f"{folder}{uuid4().hex}"
    _ask("put", key, content, use_multipart=False)
    _sync(key)
    return Content(None, key)


def _sync(key: str) -> None:
    """Make a written file durable: it outlasts a power cut, as what the database confirms does."""
    url = conf().artifacts_url
    if url.startswith("file:"):
        path = Path(url.removeprefix("file://"), key)
        for each in (path, path.parent):
            handle = os.open(each, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def read(table: str, row: Any, key: str, start: int, end: int) -> Iterator[bytes]:
    """The bytes from ``start`` up to ``end`` of the content of a row of ``table``, in pieces."""
    for at in range(start, end, PIECE):
        size = min(PIECE, end - at)
        yield bytes(_ask("get_range", key, start=at, length=size)) if key else _slice(table, row, at, size)


def _slice(table: str, row: Any, at: int, size: int) -> bytes:
    from django.db import connection

    with connection.cursor() as cur:
        cur.execute(
            f"SELECT substring(content FROM %s FOR %s) FROM {table} WHERE id = %s",  # noqa: S608 - a table of ours
            (at + 1, size, row),
        )
        found = cur.fetchone()
    if found is None or found[0] is None:
        raise Unavailable("it was replaced or deleted while it was read")
    return bytes(found[0])


def folder_of_task(tenant_id: int, task_id: Any) -> str:
    return f"{tenant_id}/tasks/{task_id}/"


def folder_of_upload(tenant_id: int, upload_id: Any) -> str:
    return f"{tenant_id}/uploads/{upload_id}/"


GONE = """
INSERT INTO slackwater_tasks_emptiedfolder (path) SELECT DISTINCT a.tenant_id || '/tasks/' || a.task_id || '/'
FROM slackwater_tasks_artifact a WHERE a.task_id = ANY(%s) AND a.key <> '' ON CONFLICT DO NOTHING
"""
"""Note the folders of tasks about to be deleted, in the same transaction, before their rows go."""
NOTE = "INSERT INTO slackwater_tasks_emptiedfolder (path) VALUES (%s) ON CONFLICT DO NOTHING"
# Who wrote there when its owner went has failed long before.
OLD = """
SELECT path FROM slackwater_tasks_emptiedfolder WHERE at < clock_timestamp() - interval '10 minutes'
ORDER BY at LIMIT %s
"""
DONE = "DELETE FROM slackwater_tasks_emptiedfolder WHERE path = %s"
BATCH: Final = 100


def empty(db: Database) -> int:
    """Delete the objects of deleted owners; returns how many folders were emptied. Safe to repeat."""
    if not conf().artifacts_url:
        return 0
    rows = db.conn.execute(OLD, (BATCH,)).fetchall()
    for (path,) in rows:
        for page in _ask("list", path) if path.endswith("/") else [[{"path": path}]]:
            if keys := [each["path"] for each in page]:
                _ask("delete", keys)
        db.conn.execute(DONE, (path,))
    return len(rows)
