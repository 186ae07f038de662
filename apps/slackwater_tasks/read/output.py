"""What tasks wrote and yielded: lines and chunks in order, from any place on, of one task or searched over many."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from scheduler_ext.core.errors import DoesNotFit
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.read.tasks import finished_ids
from slackwater_tenants.scoping import current_tenant_id

STREAMS: Final = ("stdout", "stderr", "log", "platform")
LEVELS: Final = ("debug", "info", "warning", "error", "critical")
ROWS: Final = 50
"""Rows read at once; a row can hold some tens of kilobytes."""
PLACE: Final = re.compile(r"(\d{1,9})\.(-1|\d{1,9})(?:\.(\d{1,9}))?")
WINDOW_TASKS: Final = 20_000
"""How many tasks one search looks through; the answer says where the next one continues."""
FIRST_TASKS: Final = 1_000
"""So many of them first: what is often found is found there."""


class Place(NamedTuple):
    """The place of a line or chunk: reading continues behind it."""

    fence: int = 0
    number: int = -1
    line: int = 0

    @classmethod
    def read(cls, text: str, field: str) -> Place:
        """Parse a place given to a client before; ``DoesNotFit`` for anything else."""
        found = PLACE.fullmatch(text)
        if found is None or not text.isascii():
            raise DoesNotFit("is not a place of ours", field=field)
        return cls(*(int(part or 0) for part in found.groups()))

    def __str__(self) -> str:
        return ".".join(map(str, self))

    def before(self, *, chunks: bool = False) -> int:
        """The number of the row before the one of which there may be more."""
        return self.number if chunks or self.line == WHOLE else self.number - 1


START: Final = Place()
WHOLE: Final = 999_999_999
"""The number of the line within its row."""
COLUMNS = "g.task_id, g.fence, g.attempt, g.number, g.stream, g.text, g.marks::text, g.truncated"
LINES = f"""
SELECT {COLUMNS} FROM slackwater_tasks_attemptlog g
WHERE g.task_id = %s AND g.tenant_id = %s AND (g.fence, g.number) > (%s, %s)
ORDER BY g.fence, g.number, g.stream LIMIT %s
"""  # noqa: S608 - columns of ours
CHUNKS = """
SELECT c.fence, c.number, c.attempt, c.at, c.value::text FROM slackwater_tasks_chunk c
WHERE c.task_id = %s AND c.tenant_id = %s AND (c.fence, c.number) > (%s, %s) ORDER BY c.fence, c.number LIMIT %s
"""
TAIL_ROWS: Final = 40
TAIL_CHUNKS_MOST: Final = 1_000
TAIL_LINES = f"""
SELECT f.n, o.* FROM unnest(%s::int[], %s::uuid[], %s::int[], %s::int[]) AS f(n, id, fence, number)
CROSS JOIN LATERAL (
    SELECT {COLUMNS} FROM slackwater_tasks_attemptlog g
    WHERE g.task_id = f.id AND (g.fence, g.number) > (f.fence, f.number) ORDER BY g.fence, g.number, g.stream LIMIT %s) o
ORDER BY f.n, o.fence, o.number, o.stream
"""  # noqa: S608 - columns of ours
TAIL_CHUNKS = """
SELECT f.n, o.* FROM unnest(%s::int[], %s::uuid[], %s::int[], %s::int[]) AS f(n, id, fence, number)
CROSS JOIN LATERAL (
    SELECT c.fence, c.number, c.attempt, c.at, c.value::text FROM slackwater_tasks_chunk c
    WHERE c.task_id = f.id AND (c.fence, c.number) > (f.fence, f.number) ORDER BY c.fence, c.number LIMIT %s) o
ORDER BY f.n, o.fence, o.number
"""
WINDOW = """
SELECT t.id, t.handler FROM slackwater_tasks_task t
WHERE (%(tenant)s::bigint IS NULL OR t.tenant_id = %(tenant)s) AND (%(workflow)s::uuid IS NULL OR t.workflow_id = %(workflow)s)
    AND (%(before)s::uuid IS NULL OR t.id < %(before)s)
ORDER BY t.id DESC LIMIT %(window)s
"""
WINDOW_SIZE = f"SELECT id FROM ({WINDOW}) w OFFSET %(window)s - 1"  # noqa: S608 - texts of ours
SEARCH = f"""
SELECT {COLUMNS} FROM slackwater_tasks_attemptlog g
WHERE g.task_id = ANY(ARRAY(SELECT w.id FROM ({WINDOW}) w WHERE %(handler)s = '' OR w.handler = %(handler)s))
    AND position(%(text)s in lower(g.text)) > 0
ORDER BY g.task_id DESC, g.fence, g.number, g.stream LIMIT %(rows)s
"""  # noqa: S608 - texts of ours


def _rows(task_id: UUID, after: Place) -> Iterator[tuple[Any, ...]]:
    """The rows from a place on, some at a time."""
    tenant_id, seen = current_tenant_id(), 0
    fence, number = after.fence, after.before()
    while True:
        rows = fetch_all(LINES, [task_id, tenant_id, fence, number, ROWS + seen])[seen:]
        yield from rows
        if len(rows) < ROWS:
            return
        # Rows of releases before share a number: those of the last one that were read are read over.
        fence, number = rows[-1][1], rows[-1][3] - 1
        seen = sum(1 for row in rows if (row[1], row[3] - 1) == (fence, number))


def _lines(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Each line with its place."""
    place = START
    for task_id, fence, attempt, number, stream, text, marks, truncated in rows:
        if (fence, number) != place[:2]:
            place = Place(fence, number, 0)
        for at, named, level, line in _split(stream, text, json.loads(marks) if marks else None, cut=truncated):
            place = place._replace(line=place.line + 1)
            yield place, {
                "place": str(place), "task_id": task_id, "at": at, "attempt": attempt, "fence": fence,
                "stream": named, "level": level, "text": line,
            }  # fmt: skip


def _split(stream: str, text: str, marks: Any, *, cut: bool) -> Iterator[tuple[datetime | None, str, str, str]]:
    texts = text.split("\n")
    if marks is None:  # of a release before: a whole stream, without times
        for line in texts[:-1] if texts[-1] == "" else texts:
            yield None, stream, "error" if stream == "stderr" else "info", line
        if cut:
            yield None, "platform", "warning", "cut here"
        return
    begin = 0
    for at_ms, named, level, breaks in marks:
        end = begin + breaks + 1
        yield datetime.fromtimestamp(at_ms / 1000, UTC), named, level, "\n".join(texts[begin:end])
        begin = end


def lines(task_id: UUID, *, after: Place = START, limit: int = 1_000, stream: str = "", level: str = "",
          fence: int | None = None, text: str = "") -> list[dict[str, Any]]:  # fmt: skip
    """What a task printed and logged, in order; ``level`` is the least level wanted."""
    least, wanted = LEVELS.index(level) if level else 0, text.lower()
    begin = after if fence is None or fence < after.fence else max(after, Place(fence))
    found = (
        line for place, line in _lines(_rows(task_id, begin))
        if place > after and (fence is None or place.fence == fence) and (not stream or line["stream"] == stream)
        and LEVELS.index(line["level"]) >= least and wanted in line["text"].lower()
    )  # fmt: skip
    return list(islice(found, limit))


def chunks(task_id: UUID, *, after: Place = START, limit: int = 1_000) -> list[dict[str, Any]]:
    """What a task yielded, in order."""
    rows = fetch_all(CHUNKS, [task_id, current_tenant_id(), after.fence, after.number, limit])
    return [_chunk(row) for row in rows]


def _chunk(row: tuple[Any, ...]) -> dict[str, Any]:
    fence, number, attempt, at, value = row
    return {"place": f"{fence}.{number}", "at": at, "attempt": attempt, "fence": fence, "value": json.loads(value)}


class Tail(NamedTuple):
    """A task that somebody follows, and the follower's place."""

    task_id: UUID
    place: Place
    chunks: bool = False


class Followed(NamedTuple):
    """What one look found for a follower."""

    items: list[dict[str, Any]]
    place: Place
    """The follower's new place."""
    more: bool = False
    """Whether there is more than was read."""
    ended: bool = False
    """Whether its task has ended and all of it was read."""


def tails(followed: Sequence[Tail]) -> list[Followed]:
    """What came for each of these, of any tenant: three statements for all.

    Unscoped because the tasks of many tenants are looked up at once; each follower was checked when it began.
    """
    over = set(finished_ids([tail.task_id for tail in followed]))  # asked first: what is read then is complete
    found: dict[int, list[tuple[Any, ...]]] = {}
    for statement, chunks, most in ((TAIL_LINES, False, TAIL_ROWS), (TAIL_CHUNKS, True, TAIL_CHUNKS_MOST)):
        asked = [(n, tail) for n, tail in enumerate(followed) if tail.chunks is chunks]
        if asked:
            rows = fetch_all(statement, [
                [n for n, _ in asked], [tail.task_id for _, tail in asked], [tail.place.fence for _, tail in asked],
                [tail.place.before(chunks=chunks) for _, tail in asked], most,
            ])  # fmt: skip
            found |= {n: [row[1:] for row in group] for n, group in groupby(rows, itemgetter(0))}
    return [_followed(tail, found.get(n, []), over=tail.task_id in over) for n, tail in enumerate(followed)]


def _followed(tail: Tail, rows: list[tuple[Any, ...]], *, over: bool) -> Followed:
    more = len(rows) == (TAIL_CHUNKS_MOST if tail.chunks else TAIL_ROWS)
    place = tail.place
    if tail.chunks:
        items = [_chunk(row) for row in rows]
        place = Place(rows[-1][0], rows[-1][1]) if rows else place
    else:
        items = [line for at, line in _lines(iter(rows)) if at > tail.place]
        place = Place(rows[-1][1], rows[-1][3], WHOLE) if rows else place
    return Followed(items, place, more, over and not more)


def search(text: str, *, workflow_id: UUID | None = None, handler: str = "", before: UUID | None = None,
           limit: int = 100) -> tuple[list[dict[str, Any]], UUID | None]:  # fmt: skip
    """Lines with ``text`` of the tasks of a workflow or a handler, newest task first; and where to continue.

    A bounded number of tasks is looked through: there may be more although few lines were found.
    """
    return search_of(current_tenant_id(), text, workflow_id=workflow_id, handler=handler, before=before, limit=limit)


def search_of(tenant_id: int | None, text: str, *, workflow_id: UUID | None = None, handler: str = "",
              before: UUID | None = None, limit: int = 100) -> tuple[list[dict[str, Any]], UUID | None]:  # fmt: skip
    """The same of any tenant, or of all, as operators see them."""
    text, first = text.lower(), min(FIRST_TASKS, WINDOW_TASKS)
    rows: list[tuple[Any, ...]] = []
    for window in filter(None, (first, WINDOW_TASKS - first)):
        params = {
            "tenant": tenant_id, "workflow": workflow_id, "handler": handler, "before": before,
            "text": text, "window": window, "rows": limit - len(rows),
        }  # fmt: skip
        rows += fetch_all(SEARCH, params)
        if len(rows) == limit:
            break
        ids = fetch_all(WINDOW_SIZE, params)
        before = ids[0][0] if ids else None
        if before is None:
            break
    found = [line for _, line in _lines(iter(rows)) if text in line["text"].lower()]
    if len(rows) == limit:
        # The last task's rows may not all be there: it is looked at again, unless it is the only one.
        last = rows[-1][0]
        whole = [line for line in found if line["task_id"] != last]
        return (whole, whole[-1]["task_id"]) if whole else (found, last)
    return found, before
