"""docs/reference/celery-options.md, from the one table of Celery's options."""

from __future__ import annotations

from scheduler_ext.task.celery_options import OPTIONS
from tests.lab.reference.markdown import code, page, table

INTRO = """
What becomes of each option of a Celery task, a call and a signature of a canvas when the task is durable: exported with
`slackwater.export`, or named in `DURABLE`. An option of a call that stands not here is refused with its name, by the call. A
task's decorator takes anything, and Celery makes it an attribute of the task: one that is most like an option (`max_retry`,
`acks_lat`) is refused at the start of the worker, with the option that was meant, and by the [doctor](../how-to/moving.md). Any
other is an attribute of your own and stays, as does whatever the task's `base` class has; `doctor --all` lists them.
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
