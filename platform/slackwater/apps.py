"""The app's configuration."""

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from scheduler_ext.task import handlers
from slackwater_conf import conf

BACKEND = "slackwater.django_tasks.SlackwaterBackend"
"""The backend of ``django.tasks`` by whose tasks a worker has more handlers."""

NEEDED = ("unfold", "unfold.contrib.filters", "django_celery_beat")
"""The apps of others whose classes our pages in Django's admin are made of."""


class SlackwaterConfig(AppConfig):
    """The commands, and the durable tasks of Celery applications and of ``django.tasks``."""

    name = "slackwater"

    def import_models(self) -> None:
        """As Django; ``ImproperlyConfigured`` names an app that our pages need before the admin imports them."""
        missing = [name for name in NEEDED if not apps.is_installed(name)]
        if missing and apps.is_installed("django.contrib.admin") and _looks_for_pages():
            raise ImproperlyConfigured(
                f"INSTALLED_APPS lacks {', '.join(map(repr, missing))}: beside Django's admin Slackwater's pages need it;"
                " unfold and unfold.contrib.filters stand before django.contrib.admin"
            )
        super().import_models()

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


def _looks_for_pages() -> bool:
    """Whether Django's admin imports the pages of each app, which its simple kind does not."""
    from django.contrib.admin.apps import AdminConfig  # here, for most processes have no admin

    return any(isinstance(one, AdminConfig) for one in apps.get_app_configs())
