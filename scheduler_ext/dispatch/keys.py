"""Every name in Redis and on the broker, made in one place."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_ext.core.types import QueueName, WorkKind

SLICE_TASK = "slackwater.slice"
"""The Celery task of the hot path: it lends a pool child for a slice of time."""
KILLED_TASK = "slackwater.killed"
"""The Celery task that tells hooks and receivers of a run whose process was killed."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Names under one prefix. All carry one hash tag, so that a script's keys share a slot."""

    prefix: str = "sw"

    def claims(self, node_id: int, kind: WorkKind, queue: QueueName) -> str:
        """The list of claims waiting at a node: one for each kind of slot and each queue."""
        return f"{{{self.prefix}}}:claims:{node_id}:{kind.value}:{queue.value}"

    def node_claims(self, node_id: int, kind: WorkKind) -> list[str]:
        """The node's three lists of one kind, urgent first."""
        return [self.claims(node_id, kind, queue) for queue in QueueName]

    def epoch(self, cell: str) -> str:
        """The marker that vanishes when Redis is emptied."""
        return f"{{{self.prefix}}}:epoch:{cell}"

    def hints(self, cell: str) -> str:
        """The channel that wakes the dispatcher."""
        return f"{{{self.prefix}}}:hints:{cell}"

    def room(self, cell: str) -> str:
        """The channel that tells the dispatcher of room that came free, to which it listens where that is waited for."""
        return f"{{{self.prefix}}}:room:{cell}"

    def changes(self) -> str:
        """The stream of changes of state: see ``scheduler_ext.dispatch.change_feed``."""
        return f"{{{self.prefix}}}:changes"

    def watched(self) -> str:
        """The mark that somebody follows the changes now."""
        return f"{{{self.prefix}}}:watched"

    def control(self, node_id: int) -> str:
        """The channel that tells a node to look for cancellations."""
        return f"{{{self.prefix}}}:control:{node_id}"

    def refusal(self, tenant_id: int) -> str:
        """The cached refusal of a tenant's submissions, with the time at which it ends."""
        return f"{{{self.prefix}}}:refused:{tenant_id}"

    def graph(self, workflow_id: str) -> str:
        """The packed graph of a large workflow."""
        return f"{{{self.prefix}}}:graph:{workflow_id}"

    def mutex(self, scoped_key: str, holder: str = "") -> str:
        """The lock of a mutex key; one for each ``holder`` where several may hold it."""
        return f"{{{self.prefix}}}:mutex:{scoped_key}" + (f"#{holder}" if holder else "")


def token_queue(node_id: int) -> str:
    return f"slackwater.node.{node_id}"
