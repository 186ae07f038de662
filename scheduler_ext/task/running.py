"""Which task this code runs in; apart, so that a log line can ask for it without loading the engine."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

task: ContextVar[Any] = ContextVar("slackwater_task", default=None)
"""The running ``TaskContext``; ``None`` outside of a task."""
