"""The task that this code runs in. It is a module of its own, so that logging can ask without loading the engine."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

task: ContextVar[Any] = ContextVar("slackwater_task", default=None)
"""The running ``TaskContext``; ``None`` outside of a task."""
