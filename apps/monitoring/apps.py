"""App configuration."""

from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    """Health, metrics, alerts and notifications."""

    name = "apps.monitoring"
    label = "monitoring"
    default_auto_field = "django.db.models.BigAutoField"
