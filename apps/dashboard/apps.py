"""App configuration."""

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """The admin's live pages."""

    name = "apps.dashboard"
    label = "dashboard"
    default_auto_field = "django.db.models.BigAutoField"
