"""The app's configuration."""

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured

from slackwater_conf import conf


class SlackwaterConfig(AppConfig):
    """The commands, and the durable tasks of Celery applications beside."""

    name = "slackwater"

    def ready(self) -> None:
        """Install on the project's Celery applications where ``DURABLE`` names tasks."""
        try:
            durable = conf().durable
        except ImproperlyConfigured:  # ``manage.py check`` says what is wrong
            return
        if durable:
            from slackwater.durable import install_everywhere

            install_everywhere()
