"""The app's configuration."""

from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from scheduler_ext.task import handlers
from slackwater_conf import conf

BACKEND = "slackwater.django_tasks.SlackwaterBackend"
"""The backend of ``django.tasks`` by whose tasks a worker has more handlers."""

BEAT = "django_celery_beat"
"""The app whose models our pages in Django's admin import."""
PAGES = ("unfold", "unfold.contrib.filters")
"""The apps whose templates they are made of."""


class SlackwaterConfig(AppConfig):
    """The commands, and the durable tasks of Celery applications and of ``django.tasks``."""

    name = "slackwater"

    def import_models(self) -> None:
        """As Django; ``ImproperlyConfigured`` names an app that our pages need before the admin imports them."""
        if not apps.is_installed(BEAT) and _has_pages():
            raise ImproperlyConfigured(
                f"INSTALLED_APPS lacks {BEAT!r}: beside Django's admin Slackwater's pages need it"
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


@checks.register("pages")
def check_pages(**_: Any) -> list[checks.CheckMessage]:
    """Whether the pages in Django's admin can be shown."""
    missing = [name for name in PAGES if not apps.is_installed(name)]
    if not missing or not _has_pages():
        return []
    told = f"INSTALLED_APPS lacks {', '.join(map(repr, missing))}: Slackwater's pages in Django's admin cannot be shown"
    return [checks.Warning(told, hint="They stand before django.contrib.admin.", id="slackwater.W006")]


def _has_pages() -> bool:
    """Whether Django's admin imports the pages of each app, which its simple kind does not."""
    if not apps.is_installed("django.contrib.admin"):
        return False
    from django.contrib.admin.apps import AdminConfig  # here, for most processes have no admin

    return any(isinstance(one, AdminConfig) for one in apps.get_app_configs())
