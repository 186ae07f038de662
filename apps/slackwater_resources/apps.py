"""The app's configuration."""

from django.apps import AppConfig


class ResourcesConfig(AppConfig):
    """Tiers and nodes."""

    name = "slackwater_resources"
    verbose_name = "Resources"
    default_auto_field = "django.db.models.BigAutoField"
