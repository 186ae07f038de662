"""Pausing and resuming in the admin: the same buttons, actions and column for whatever can be paused."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from scheduler_ext.core.errors import Conflict
from slackwater_adminkit.buttons import Button, ButtonsMixin
from slackwater_adminkit.display import badge


def pause_buttons(action: str, title: str = "") -> dict[str, Button]:
    """``pause`` and ``resume``; ``action`` and ``title`` tell what the pause does."""
    return {
        "pause": Button(
            label="Pause",
            title=title,
            action=action,
            done="paused",
            log="Paused, from active.",
            undo="resume",
            when=lambda obj: not obj.paused,
        ),
        "resume": Button(
            label="Resume",
            action="Resume",
            done="resumed",
            log="Resumed, from paused.",
            undo="pause",
            when=lambda obj: obj.paused,
        ),
    }


class PausableMixin(ButtonsMixin):
    """Adds ``pause``, ``resume`` and ``state`` to the admin of a model that has ``paused``."""

    buttons: ClassVar = pause_buttons("Pause: accept tasks, start none", "Tasks are accepted, none is started")

    def set_paused(self, obj: Any, *, paused: bool) -> bool:
        """Pause or resume by the service; False when it was so before."""
        raise NotImplementedError

    @admin.display(description="state")
    def state(self, obj: Any) -> SafeString:
        return badge("paused", "waiting") if obj.paused else badge("active", "succeeded")

    def pause(self, request: HttpRequest, obj: Any) -> str:
        """Start none of its tasks from the next round on."""
        if not self.set_paused(obj, paused=True):
            raise Conflict("it is paused already")
        return f"{obj} is paused: its tasks are accepted and wait."

    def resume(self, request: HttpRequest, obj: Any) -> str:
        """Start its tasks again."""
        if not self.set_paused(obj, paused=False):
            raise Conflict("it is not paused")
        return f"{obj} runs again."
