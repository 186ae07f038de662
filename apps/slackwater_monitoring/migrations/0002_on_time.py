"""How many tasks began by their latest start."""

import django.db.models.deletion
import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("slackwater_monitoring", "0001_initial"),
        ("slackwater_tasks", "0007_latest_start"),
    ]
    operations = [
        migrations.CreateModel(
            name="OnTime",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "tenant", "day", "tier", "category", "handler",
                        blank=True, editable=False, primary_key=True, serialize=False,
                    ),
                ),
                ("day", models.DateField()),
                ("tier", models.CharField(help_text="The tier's name: it may be gone by now.", max_length=63)),
                (
                    "category",
                    models.PositiveSmallIntegerField(
                        choices=[(1, "urgent"), (2, "delayable"), (3, "periodic"), (4, "offpeak")]
                    ),
                ),
                ("handler", models.CharField(help_text="Empty for scripts.", max_length=200)),
                ("started", models.BigIntegerField(default=0)),
                ("on_time", models.BigIntegerField(default=0)),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+",
                        to="slackwater_tenants.tenant",
                    ),
                ),
            ],
            options={"base_manager_name": "_plain"},
            managers=[
                ("objects", django.db.models.manager.Manager()),
                ("_plain", django.db.models.manager.Manager()),
            ],
        ),
    ]  # fmt: skip
