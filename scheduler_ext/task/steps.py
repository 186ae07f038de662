"""The steps of a canvas: which follows which, and Celery's results of them once they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from celery import Celery
from celery.utils import uuid

Feed = str | list[Any]
"""Where a value comes from: a task's name, or a list of such, nested as Celery nests results."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A task of a canvas, or several beside each other."""

    feed: Feed
    """Where its result comes from."""
    before: Step | None
    """The step that it follows; of a member of a group, what the group follows."""
    members: tuple[Step, ...] = ()
    """Of several the last steps of each."""

    @property
    def last(self) -> Iterator[Step]:
        """The single tasks whose results are its own, in their order."""
        if isinstance(self.feed, str):
            yield self
        for member in self.members:
            yield from member.last


@dataclass(frozen=True, slots=True)
class Stored:
    """A signature or canvas that the ledger has taken."""

    step: Step
    """Its last."""
    ids: Mapping[str, str]
    """Those of its tasks, by their names."""

    @property
    def result_ids(self) -> list[str]:
        """The ids of the tasks whose results are its own."""
        return [self.ids[name] for name in names_in(self.step.feed)]

    def result(self, app: Celery) -> Any:
        """Celery's result of it, with the results of what it follows as its parents."""
        return self._result(app, self.step, None)

    def _result(self, app: Celery, step: Step, end: Step | None) -> Any:
        """The result of a step; its parents go back as far as to ``end``, which a group follows."""
        steps: list[Step] = []
        node: Step | None = step
        while node is not None and node is not end:
            steps.append(node)
            node = node.before
        parent: Any = None
        for node in reversed(steps):
            if isinstance(node.feed, str):
                parent = app.AsyncResult(self.ids[node.feed], parent=parent)
            else:
                parent = app.GroupResult(
                    uuid(), [self._result(app, one, node.before) for one in node.last], parent=parent
                )
        return parent


def names_in(feed: Feed) -> Iterator[str]:
    """The names of the tasks that a value comes from, in their order."""
    if isinstance(feed, str):
        yield feed
        return
    for entry in feed:
        yield from names_in(entry)
