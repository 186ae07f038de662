"""docs/reference/states.md, from the table of legal changes."""

from __future__ import annotations

from scheduler_ext.core.states import (
    FINAL,
    TRANSITIONS,
    EdgeOutcome,
    Outcome,
    RunCondition,
    TaskState,
    client_status,
)
from tests.lab.reference.markdown import attribute_docs, code, page, plain, table

SOURCE = "`scheduler_ext/core/states.py`"
ORDINARY = {
    (None, TaskState.BLOCKED),
    (None, TaskState.READY),
    (TaskState.BLOCKED, TaskState.READY),
    (TaskState.READY, TaskState.QUEUED),
    (TaskState.QUEUED, TaskState.RUNNING),
    (TaskState.RUNNING, TaskState.SUCCEEDED),
}
INTRO = """
A task is in exactly one state. The database holds it, one module writes it
(`apps/slackwater_tasks/ledger/transitions.py`), and only the changes below exist: anything else is refused. Every
change compares before it sets: what was decided about a task that has moved on meanwhile changes nothing.

Clients see four statuses, with the state beside them.
"""
HISTORY = """
On the ordinary path (bold in the table) the attempt itself is the history: when it was queued, started and finished,
where, and how it ended. Every other change leaves an event with the moment, the actor and the reason.
`GET /api/v1/tasks/{id}/history` reads both as one.
"""


def render() -> str:
    """The page."""
    return page(
        "States of a task",
        SOURCE,
        INTRO,
        "## The states",
        states(),
        "## The picture",
        "Thick lines are the ordinary path, thin ones everything else that may happen. Every final state can be left "
        "once more, by running the task again: that is in the table only.",
        picture(),
        "## All legal changes",
        HISTORY,
        changes(),
        "## How one attempt ends",
        enum_table(Outcome, "outcome"),
        "## What an edge knows, and when a task with parents runs",
        enum_table(EdgeOutcome, "edge"),
        conditions(),
    )


def states() -> str:
    """One row for each state."""
    docs = attribute_docs(TaskState)
    meaning = {TaskState.SUCCEEDED: "Its code ran to its end without an error."}
    return table(
        ("state", "status for clients", "final", "meaning"),
        (
            (
                code(word(state)),
                client_status(state).label,
                "yes" if state in FINAL else "",
                plain(docs.get(state.name) or meaning.get(state, "")),
            )
            for state in TaskState
        ),
    )


def picture() -> str:
    """The changes as a Mermaid flowchart; running again by hand is left to the table."""
    lines = ["```mermaid", "flowchart TB", "    new((submitted))"]
    lines += [f"    {state.name}([{word(state)}])" for state in TaskState if state in FINAL]
    lines += [f"    {state.name}[{word(state)}]" for state in TaskState if state not in FINAL]
    for before, after in TRANSITIONS:
        if before in FINAL:
            continue
        arrow = "==>" if (before, after) in ORDINARY else "-->"
        lines.append(f"    {'new' if before is None else before.name} {arrow} {after.name}")
    return "\n".join([*lines, "```"])


def changes() -> str:
    """One row for each legal change."""
    rows = []
    for (before, after), why in TRANSITIONS.items():
        old = "(none)" if before is None else code(word(before))
        new = code(word(after))
        bold = (before, after) in ORDINARY
        rows.append((f"**{old}**" if bold else old, f"**{new}**" if bold else new, why))
    return table(("from", "to", "when"), rows)


def enum_table(enum: type[Outcome | EdgeOutcome], head: str) -> str:
    """Members with what stands below them."""
    docs = attribute_docs(enum)
    said = {
        "SUCCEEDED": "It succeeded.",
        "CANCELLED": "It was cancelled.",
        "CAP_EXCEEDED": "It ran longer than its execution cap; its process, or its process tree, was ended.",
        "PENDING": "The parent is not final yet.",
        "SKIPPED": "It was skipped.",
    }
    return table(
        (head, "meaning"),
        ((code(member.name.lower()), plain(docs.get(member.name) or said.get(member.name, ""))) for member in enum),
    )


def conditions() -> str:
    """The conditions a task with parents may name."""
    said = {
        RunCondition.ALL_SUCCEEDED: "all parents succeeded (the default)",
        RunCondition.ALL_DONE: "all parents are final, however they ended",
        RunCondition.ANY_FAILED: "all parents are final and at least one failed or expired",
        RunCondition.NONE_FAILED: "all parents are final and none failed or expired; cancelled and skipped ones are allowed",
    }
    return table(("condition", "the task runs when"), ((code(c.name.lower()), said[c]) for c in RunCondition))


def word(state: TaskState) -> str:
    """The state as the API spells it."""
    return state.name.lower()
