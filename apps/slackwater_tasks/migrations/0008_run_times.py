"""How run times are spread, beside their mean."""

from django.db import migrations, models
from django.db.models import Value


class Migration(migrations.Migration):
    dependencies = [("slackwater_tasks", "0007_latest_start")]
    operations = [
        migrations.AddField(
            "runtime", "long_us", models.FloatField(null=True, help_text="What nine in ten runs do not exceed.")
        ),
        migrations.AddField(
            "runtime",
            "buckets",
            models.JSONField(
                default=dict, db_default=Value({}, models.JSONField()), help_text="Runs by length."
            ),
        ),
    ]
