"""The app's configuration."""

from django.apps import AppConfig


class ResourcesConfig(AppConfig):
    """Tiers and nodes."""

    name = "slackwater_resources"
    default_auto_field = "django.db.models.BigAutoField"
