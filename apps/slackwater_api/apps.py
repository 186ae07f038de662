"""App configuration."""

from django.apps import AppConfig


class ApiConfig(AppConfig):
    """The REST interface."""

    name = "slackwater_api"
    label = "slackwater_api"
    default_auto_field = "django.db.models.BigAutoField"
