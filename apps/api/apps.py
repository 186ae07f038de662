"""App configuration."""

from django.apps import AppConfig


class ApiConfig(AppConfig):
    """The REST interface."""

    name = "apps.api"
    label = "api"
    default_auto_field = "django.db.models.BigAutoField"
