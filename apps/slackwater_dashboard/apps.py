"""App configuration."""

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """The admin's live pages."""

    name = "slackwater_dashboard"
    label = "slackwater_dashboard"
    default_auto_field = "django.db.models.BigAutoField"
