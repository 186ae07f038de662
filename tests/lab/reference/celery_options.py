"""docs/reference/celery-options.md, from the one table of Celery's options."""

from __future__ import annotations

from scheduler_ext.task.celery_options import OPTIONS
from tests.lab.reference.markdown import code, page, table

INTRO = """
What becomes of each option of a Celery task, a call and a signature of a canvas when the task is durable: exported with
`slackwater.export`, or named in `DURABLE`. An option that stands not here is refused with its name: a task's at the start of
the worker, a call's by the call.
"""


def render() -> str:
    """The page."""
    rows = [(code(option.name), option.given, str(option.fate), option.becomes) for option in OPTIONS]
    return page(
        "Celery's options",
        "`scheduler_ext/task/celery_options.py`",
        INTRO,
        table(("option", "of a", "it", "how"), rows),
    )
