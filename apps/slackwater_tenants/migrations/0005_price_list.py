"""The plans that ship; an administrator may edit them, and delete those that nobody is on."""

from django.db import migrations

from slackwater_tenants.price_list import ship


def create_plans(apps, schema_editor):
    """Those that are missing."""
    ship(apps.get_model("slackwater_tenants", "Plan"))


class Migration(migrations.Migration):
    dependencies = [("slackwater_tenants", "0004_membership_public_id")]
    operations = [migrations.RunPython(create_plans, migrations.RunPython.noop)]
