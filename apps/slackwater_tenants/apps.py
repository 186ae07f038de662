"""The app's configuration."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Tenants, plans and keys."""

    name = "slackwater_tenants"
    verbose_name = "Tenants"
    default_auto_field = "django.db.models.BigAutoField"
