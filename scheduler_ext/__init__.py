"""Slackwater's Celery extension: deciding, queues and running. Nothing here imports Django."""

from __future__ import annotations

from typing import Any

__all__ = ["current", "export", "handler", "once"]

_HOMES = {"current": "context", "once": "context", "export": "handlers", "handler": "handlers"}


def __getattr__(name: str) -> Any:
    """What handlers are written with, imported on first use: the pure centre must not load Celery."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
