"""docs/reference/policies.md, from the registry."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from scheduler_ext.policies.registry import ORDER_POLICIES, SHARE_POLICIES
from tests.lab.reference.markdown import attribute_docs, code, page, plain, table

INTRO = """
Deciding has two halves. An **order policy** gives a task its place *inside* its line: the ready tasks of one tenant,
category and tier. A **share policy** chooses *between* lines. Both are pure functions, so the same code can be
simulated.
`SLACKWATER_SCHEDULER` names them: `{"order_policy": "fifo", "share_policy": "dominant_resource"}`.
"""


def render() -> str:
    """The page."""
    return page(
        "Policies",
        "`scheduler_ext/policies/`",
        INTRO,
        "## Order inside a line",
        *described(ORDER_POLICIES),
        "## Share between lines",
        *described(SHARE_POLICIES),
    )


def described(policies: Mapping[str, type[Any]]) -> list[str]:
    """A section for each policy."""
    parts = []
    for name, policy in policies.items():
        module = inspect.getdoc(sys.modules[policy.__module__]) or ""
        parts += [f"### `{name}`", plain(module)]
        if parameters := parameter_rows(policy):
            parts.append(table(("parameter", "default", "meaning"), parameters))
    return parts


def parameter_rows(policy: type[Any]) -> list[tuple[str, str, str]]:
    """What may be set of a policy."""
    docs = attribute_docs(policy)
    rows = []
    for spec in fields(policy):
        if not spec.init or spec.name == "name":
            continue
        default = spec.default_factory() if spec.default_factory is not MISSING else spec.default
        rows.append((code(spec.name), code(str(default)), plain(docs.get(spec.name, ""))))
    return rows
