"""Django's shell, in which calls of handlers by Celery's own API reach the ledger."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.commands.shell import Command as DjangoShell


class Command(DjangoShell):
    def handle(self, **options: Any) -> None:
        if settings.SETTINGS_MODULE.startswith("slackwater."):  # the service's own: a guest has an application already
            from slackwater.celery import app

            app.set_default()
        super().handle(**options)
