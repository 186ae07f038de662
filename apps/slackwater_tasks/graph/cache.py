"""Graphs of large workflows in Redis: a process that has not met one loads it ready to use, in milliseconds.

They may vanish: whoever misses one reads the edges from the database and leaves the graph here again. Everything is as
in memory, in arrays, because to read 100,000 edges and arrange them takes ten times as long as to answer.
"""

from __future__ import annotations

import logging
import struct
import sys
from array import array
from typing import Any, Final
from uuid import UUID

from scheduler_ext.core.seals import LENGTH, seals
from scheduler_ext.dispatch import redis_client
from scheduler_ext.dispatch.refusals import Kind, refusals
from slackwater_tasks.graph.packed import Shape
from slackwater_tasks.ledger.hints import client, keys

log = logging.getLogger(__name__)

KEPT_S: Final = 3_600
"""How long a graph is kept, with the run times that were learnt when it was packed."""
HEAD: Final = struct.Struct("<4scqqqq?")
"""Format, byte order, the workflow's two counts, tasks and edges packed, and whether run times were learnt."""
FORMAT: Final = b"SWG1"
ORDER: Final = sys.byteorder[0].encode()


def pack(shape: Shape, counts: tuple[int, int]) -> bytes:
    """The graph as bytes; ``counts``: the workflow's tasks and edges, which tell its age."""
    head = HEAD.pack(FORMAT, ORDER, *counts, len(shape.ids), len(shape.parents), shape.learnt)
    whole = (
        shape.parents, shape.parents_at, shape.children, shape.children_at, shape.order, shape.depths,
    )  # fmt: skip
    real = (shape.weights, shape.above, shape.below)
    return b"".join(
        [
            head,
            *(array("i", numbers).tobytes() for numbers in whole),
            *(array("d", numbers).tobytes() for numbers in real),
            ",".join(shape.ids).encode("ascii"),
        ]
    )


def unpack(data: bytes, counts: tuple[int, int]) -> Shape | None:
    """The graph; None when the workflow has grown since, or another kind of machine or release packed it."""
    if len(data) < HEAD.size:
        return None
    form, order, tasks, edges, n, m, learnt = HEAD.unpack_from(data)
    if (form, order) != (FORMAT, ORDER) or (tasks, edges) != counts:
        return None
    view, at = memoryview(data), HEAD.size

    def take(kind: str, count: int) -> Any:
        nonlocal at
        numbers: array[Any] = array(kind)
        end = at + count * numbers.itemsize
        numbers.frombytes(view[at:end])
        at = end
        return numbers.tolist()

    parents, parents_at, children, children_at, order_, depths = (
        take("i", count) for count in (m, n + 1, m, n + 1, n, n)
    )
    weights, above, below = (take("d", n) for _ in range(3))
    text = str(view[at:], "ascii")
    return Shape(
        ids=text.split(",") if text else [], weights=weights, learnt=learnt, parents=parents, parents_at=parents_at,
        children=children, children_at=children_at, order=order_, depths=depths, above=above, below=below,
    )  # fmt: skip


def get(workflow_id: UUID, counts: tuple[int, int]) -> Shape | None:
    """The graph that a process left here, unless the workflow has grown since. None without Redis, too."""
    try:
        data = client().get(keys().graph(str(workflow_id)))
    except redis_client.RedisError as error:
        log.debug("no graph from Redis: %s", error)
        return None
    if not isinstance(data, bytes):
        return None
    if not seals.holds(data[-LENGTH:].decode("ascii", "replace"), "graph", workflow_id.bytes, data[:-LENGTH]):
        refusals.add(Kind.CACHED, "a graph without this platform's seal")
        return None
    return unpack(data[:-LENGTH], counts)


def has(workflow_id: UUID, counts: tuple[int, int]) -> bool:
    """Whether the graph lies here as it is now; True without Redis, too, where nobody can leave one."""
    try:
        head = client().getrange(keys().graph(str(workflow_id)), 0, HEAD.size - 1)
    except redis_client.RedisError as error:
        log.debug("no graph from Redis: %s", error)
        return True
    return isinstance(head, bytes) and len(head) == HEAD.size and HEAD.unpack(head)[:4] == (FORMAT, ORDER, *counts)


def put(workflow_id: UUID, counts: tuple[int, int], shape: Shape) -> None:
    """Leave a graph for the other processes."""
    try:
        data = pack(shape, counts)
        seal = seals.mark("graph", workflow_id.bytes, data).encode()
        client().set(keys().graph(str(workflow_id)), data + seal, ex=KEPT_S)
    except redis_client.RedisError as error:
        log.debug("a graph is not shared: %s", error)
