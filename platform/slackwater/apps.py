"""The platform as a Django app."""

from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings


class SlackwaterConfig(AppConfig):
    """Makes the Celery app of the service every process's own: what a shell or a view calls finds the ledger."""

    name = "slackwater"

    def ready(self) -> None:
        """Load it; a shared task would else be published to a broker nobody set. A project has an app of its own."""
        if str(settings.SETTINGS_MODULE).startswith("slackwater.settings"):
            from slackwater.celery import app

            app.set_default()
