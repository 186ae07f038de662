"""The three shared tiers every installation begins with; an administrator may edit them."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

TIERS = {
    "basic": {"cpu_milli": 250, "memory_mb": 256, "disk_mb": 512, "iops": 100, "bandwidth_kbps": 10_000, "ports": 0},
    "regular": {"cpu_milli": 500, "memory_mb": 1_024, "disk_mb": 2_048, "iops": 500, "bandwidth_kbps": 50_000, "ports": 1},
    "premium": {"cpu_milli": 1_000, "memory_mb": 4_096, "disk_mb": 10_240, "iops": 2_000, "bandwidth_kbps": 100_000, "ports": 4},
}
CAPS = {"basic": 300, "regular": 1_800, "premium": 7_200}


def create(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Create what is missing."""
    tier = apps.get_model("resources", "Tier")
    for slug, vector in TIERS.items():
        tier.objects.get_or_create(slug=slug, tenant=None, defaults={**vector, "default_cap_s": CAPS[slug]})


class Migration(migrations.Migration):
    """Data only."""

    dependencies = [("resources", "0001_initial")]
    operations = [migrations.RunPython(create, migrations.RunPython.noop)]
