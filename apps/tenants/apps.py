"""The app's configuration."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Tenants, plans and keys."""

    name = "apps.tenants"
    label = "tenants"
    default_auto_field = "django.db.models.BigAutoField"
