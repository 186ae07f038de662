"""What a tenant was told of once, besides its work; and results that go with their events."""

import django.db.models.deletion
import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("slackwater_monitoring", "0002_on_time"), ("slackwater_schedules", "0003_fire_failed")]
    operations = [
        migrations.AddField(
            "subscription",
            "include_result",
            models.BooleanField(
                default=False, db_default=False, help_text="What a task returned goes with its task.succeeded."
            ),
        ),
        migrations.CreateModel(
            name="Told",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "tenant", "event", "subject", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("event", models.CharField(max_length=32)),
                ("subject", models.CharField(max_length=100)),
                ("at", models.DateTimeField()),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+",
                        to="slackwater_tenants.tenant",
                    ),
                ),
            ],
            options={"verbose_name_plural": "told", "abstract": False, "base_manager_name": "_plain"},
            managers=[
                ("objects", django.db.models.manager.Manager()),
                ("_plain", django.db.models.manager.Manager()),
            ],
        ),
    ]  # fmt: skip
