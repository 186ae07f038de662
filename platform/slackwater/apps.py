"""The app's configuration."""

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from scheduler_ext.task import handlers
from slackwater_conf import conf

BACKEND = "slackwater.django_tasks.SlackwaterBackend"
"""The backend of ``django.tasks`` by whose tasks a worker has more handlers."""


class SlackwaterConfig(AppConfig):
    """The commands, and the durable tasks of Celery applications and of ``django.tasks``."""

    name = "slackwater"

    def ready(self) -> None:
        """Install on the project's Celery applications where ``DURABLE`` names tasks."""
        try:
            durable, shadowed = conf().durable, conf().shadow
        except ImproperlyConfigured:  # ``manage.py check`` says what is wrong
            return
        backends = {params.get("BACKEND") for params in getattr(settings, "TASKS", {}).values()}
        handlers.declare(durable, shadowed)
        if shadowed:
            from slackwater import shadow

            shadow.install()
        if durable or BACKEND in backends:
            from slackwater.durable import install_everywhere

            install_everywhere()
        if BACKEND in backends:
            from slackwater.django_tasks import discover

            discover()
