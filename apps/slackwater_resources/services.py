"""Operations of administrators on nodes and handlers."""

from __future__ import annotations

import logging
from uuid import UUID

from django.db import transaction

from scheduler_ext.core.errors import Conflict, NotFound
from scheduler_ext.dispatch import redis_client
from scheduler_ext.dispatch.keys import Keys
from slackwater_conf import conf
from slackwater_resources.models import Handler, Node

log = logging.getLogger(__name__)


def find_node(node_id: UUID) -> Node:
    """The node of that id, of whatever cell; ``NotFound`` when there is none."""
    found = Node.objects.filter(incarnation=node_id).first()
    if found is None:
        raise NotFound(f"There is no node {node_id}.")
    return found


def drain_node(node: Node) -> None:
    """Give a node nothing new: what has not begun goes back within a second, what saves checkpoints yields, the rest
    is finished. ``Conflict`` when it is not active."""
    _change(node, Node.State.ACTIVE, Node.State.DRAINING)


def activate_node(node: Node) -> None:
    """Give a draining node work again. ``Conflict`` when it is not draining: a node that left comes back by itself."""
    _change(node, Node.State.DRAINING, Node.State.ACTIVE)


def _change(node: Node, before: Node.State, after: Node.State) -> None:
    if not Node.objects.filter(pk=node.pk, state=before).update(state=after):
        now = Node.objects.values_list("state", flat=True).get(pk=node.pk)
        raise Conflict(f"node {node} is {now}, not {before.value}", field="state")
    node.state = after
    transaction.on_commit(lambda: _tell(node.pk))


def _tell(node_id: int) -> None:
    """Notify the node at once; without Redis it finds out when it renews its lease."""
    keys = Keys(conf().scheduler.key_prefix)
    try:
        with redis_client.connect(conf().redis_url, socket_timeout=1.0, socket_connect_timeout=0.5) as client:
            client.publish(keys.control(node_id), "state")
    except redis_client.RedisError as error:
        log.debug("node %s not told: %s", node_id, error)


def set_handler_paused(handler: Handler, *, paused: bool) -> bool:
    """Pause or resume a handler: its tasks are accepted, none is started. False when it was so before."""
    changed = Handler.objects.filter(pk=handler.pk, paused=not paused).update(paused=paused) == 1
    handler.paused = paused
    return changed
