"""A snapshot after a round's claims."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from scheduler_ext.core.resources import add, filled, peak
from scheduler_ext.core.types import Decision, LineView, NodeView, Snapshot
from scheduler_ext.round.gate import share_milli


def after(snapshot: Snapshot, decisions: Sequence[Decision]) -> Snapshot:
    """The snapshot with a round's claims made."""
    if not decisions:
        return snapshot
    nodes = {node.node_id: node for node in snapshot.nodes}
    vectors = {line.line_id: filled(line.vector) for line in snapshot.lines}
    for decision in decisions:
        nodes[decision.node_id] = _with_claim(nodes[decision.node_id], decision, vectors[decision.line_id])
    taken = frozenset(decision.task_id for decision in decisions)
    return replace(snapshot, nodes=tuple(nodes.values()), lines=less(snapshot.lines, taken))


def _with_claim(node: NodeView, decision: Decision, vector: tuple[int, ...]) -> NodeView:
    if decision.exclusive:
        count = node.exclusive_count.get(decision.kind, 0) + 1
        return replace(
            node, exclusive_used=add(filled(node.exclusive_used), vector),
            exclusive_count={**node.exclusive_count, decision.kind: count},
        )  # fmt: skip
    milli = node.batch_milli + share_milli(decision.expected_us)
    largest = peak(filled(node.batch_peak), vector)
    return replace(node, batch_milli=milli, batch_count=node.batch_count + 1, batch_peak=largest)


def less(lines: Iterable[LineView], taken: Container[str]) -> tuple[LineView, ...]:
    """The lines without some of their heads; a line without heads is dropped."""
    left = [replace(line, heads=tuple(t for t in line.heads if t.task_id not in taken)) for line in lines]
    return tuple(line for line in left if line.heads)
