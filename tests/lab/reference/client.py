"""docs/reference/client.md, from the client's methods and the command's parser."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator
from typing import Any

from slackwater.cli.parser import parser
from tests.lab.reference.commands import argument
from tests.lab.reference.markdown import code, page, plain, table

INTRO = """
What [the client and the command](../how-to/client.md) have. Of `AsyncClient` operations are awaited, lists and streams are
gone through by `async for`. `**fields` are [the fields of a task](task-fields.md) or of what the method is about,
`**narrowed` the filters of the list.
"""
KINDS = {"operation": "", "listing": "list", "following": "stream"}


def render() -> str:
    """The page. What is written of the client before it (``client_shapes``) is what the client needs."""
    from slackwater.cli.fields import flags

    methods = table(("method", "", "what it does"), _methods())
    commands: Any = next(one for one in parser(flags())._actions if isinstance(one, argparse._SubParsersAction))
    parts = [_command(name, one) for name, one in commands.choices.items()]
    return page(
        "The client",
        "`platform/slackwater/client/` and `cli/`",
        INTRO,
        f"## Methods\n\n{methods}",
        "## The command",
        *parts,
    )


def _methods() -> Iterator[tuple[str, str, str]]:
    from slackwater.client import Client

    for kind in Client.__mro__:
        for name, found in vars(kind).items():
            if type(found).__name__ in KINDS:
                given = inspect.signature(found.__wrapped__).parameters.values()
                shown = ", ".join(str(one.replace(annotation=one.empty)) for one in given if one.name != "self")
                yield (
                    code(f"{name}({shown})"),
                    KINDS[type(found).__name__],
                    plain((found.__doc__ or "").split("\n\n", maxsplit=1)[0]),
                )


def _command(name: str, one: argparse.ArgumentParser) -> str:
    common = {"help", "json", "url"}
    actions = [action for action in one._actions if action.dest not in common]
    rows = table(("argument", "what it does"), map(argument, actions)) if actions else ""
    return f"### `slackwater {name}`\n\n{one.description}\n\n{rows}"
