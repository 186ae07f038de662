"""What an hour of the shared tiers costs, on a platform that is new: nobody's bill begins by an upgrade."""

from django.db import migrations

from slackwater_tenants.price_list import TIER_HOUR_MICROS


def price_tiers(apps, schema_editor):
    """The three shared tiers, while there is no tenant."""
    if apps.get_model("slackwater_tenants", "Tenant").objects.exists():
        return
    for slug, price in TIER_HOUR_MICROS.items():
        tiers = apps.get_model("slackwater_resources", "Tier").objects
        tiers.filter(slug=slug, tenant=None, price_micros_per_hour=0).update(price_micros_per_hour=price)


class Migration(migrations.Migration):
    dependencies = [("slackwater_resources", "0003_handler_terms"), ("slackwater_tenants", "0005_price_list")]
    operations = [migrations.RunPython(price_tiers, migrations.RunPython.noop)]
