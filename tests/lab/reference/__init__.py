"""The generated pages of docs/reference: each is a function from the code to Markdown."""

from __future__ import annotations

from collections.abc import Callable

from tests.lab.reference import (
    celery_options,
    client,
    client_shapes,
    commands,
    environment,
    plans,
    policies,
    rooms,
    settings,
    states,
    task_fields,
)

PAGES: dict[str, Callable[[], str]] = {
    "reference/states.md": states.render,
    "reference/settings.md": settings.render,
    "reference/environment.md": environment.render,
    "reference/commands.md": commands.render,
    "reference/policies.md": policies.render,
    "reference/plans.md": plans.render,
    "reference/task-fields.md": task_fields.render,
    "reference/celery-options.md": celery_options.render,
    "reference/rooms.md": rooms.render,
    "../platform/slackwater/client/of_tasks.py": client_shapes.of_tasks,
    "../platform/slackwater/client/of_platform.py": client_shapes.of_platform,
    "../platform/slackwater/client/bodies.py": client_shapes.bodies,
    "reference/client.md": client.render,
}
"""Path under docs/ -> what writes it."""
