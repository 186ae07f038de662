"""What administrators do to nodes and handlers."""

from __future__ import annotations

from apps.resources.models import Handler, Node
from scheduler_ext.core.errors import Conflict


def drain_node(node: Node) -> None:
    """Give a node nothing new; what it runs is finished. ``Conflict`` when it is not active."""
    _change(node, Node.State.ACTIVE, Node.State.DRAINING)


def activate_node(node: Node) -> None:
    """Give a draining node work again. ``Conflict`` when it is not draining: a node that left comes back by itself."""
    _change(node, Node.State.DRAINING, Node.State.ACTIVE)


def _change(node: Node, before: Node.State, after: Node.State) -> None:
    if not Node.objects.filter(pk=node.pk, state=before).update(state=after):
        now = Node.objects.values_list("state", flat=True).get(pk=node.pk)
        raise Conflict(f"node {node} is {now}, not {before.value}", field="state")
    node.state = after


def set_handler_paused(handler: Handler, *, paused: bool) -> bool:
    """Pause or resume a handler: its tasks are accepted, none is started. False when it was so before."""
    changed = Handler.objects.filter(pk=handler.pk, paused=not paused).update(paused=paused) == 1
    handler.paused = paused
    return changed
