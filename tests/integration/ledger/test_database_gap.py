"""After the database itself was away no node is declared lost before it had its chance to renew."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from scheduler_ext.conf import SchedulerConf
from slackwater.wiring import engine
from slackwater_resources.models import Node
from slackwater_tasks.models import Leader
from slackwater_tasks.upkeep.jobs import LedgerUpkeep
from tests.support.hand_worker import HandWorker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
CONF = SchedulerConf(node_lease_s=2.0, node_renew_s=0.4, leader_lease_s=2.0, leader_renew_s=0.4)


def away(seconds: float, over_s: float = 1.2) -> Node:
    """A node and a leader that could renew nothing for that long, and then some: the node's lease is over."""
    node = HandWorker().node
    then = timezone.now() - timedelta(seconds=seconds)
    Node.objects.filter(pk=node.pk).update(
        heartbeat_at=then, lease_expires_at=timezone.now() - timedelta(seconds=over_s)
    )
    Leader.objects.update(renewed_at=then, expires_at=timezone.now() - timedelta(seconds=0.1))
    return node


def state_of(node: Node) -> str:
    return str(Node.objects.get(pk=node.pk).state)


@pytest.mark.parametrize("gap", [30.0, 1.7])
def test_upkeep_that_is_back_before_the_leader_loses_no_node(gap: float) -> None:
    node = away(gap)
    upkeep = LedgerUpkeep(CONF, lambda changes: None)
    upkeep.lose_nodes()
    assert state_of(node) == "active", "nobody has led since: the database was away"
    store = engine().round_store("test leader")
    store.conf = CONF
    assert store.lead("test leader").leads
    upkeep.lose_nodes()
    assert state_of(node) == "active", "it has one lease's time from the first sign of a leader"

    def lost() -> bool:
        store.lead("test leader")
        upkeep.lose_nodes()
        return state_of(node) == "lost"

    wait_until(lost, timeout=10, message="a node that does not come back is lost all the same")
    store.db.close()
    upkeep.db.close()


def test_a_node_is_lost_once_its_children_have_seen_the_end_of_their_lease() -> None:
    node = away(0.2, over_s=0.1)
    upkeep = LedgerUpkeep(replace(CONF, node_lease_s=30.0), lambda changes: None)
    Node.objects.filter(pk=node.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=0.1))
    upkeep.lose_nodes()
    assert state_of(node) == "active", "its children may still be acting"
    Leader.objects.update(renewed_at=timezone.now())
    Node.objects.filter(pk=node.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1.1))
    upkeep.lose_nodes()
    assert state_of(node) == "lost"
    upkeep.db.close()
