"""Maps: tasks that stand for one task for each element of a parent's result."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("slackwater_tasks", "0019_max_running"), ("slackwater_tenants", "0009_labels")]
    operations = [
        migrations.CreateModel(
            name="MapNode",
            fields=[
                (
                    "task",
                    models.OneToOneField(
                        db_constraint=False, on_delete=django.db.models.deletion.CASCADE, primary_key=True,
                        related_name="+", serialize=False, to="slackwater_tasks.task",
                    ),
                ),
                ("given", models.JSONField(help_text="Over what it maps, and into which arguments.")),
                (
                    "elements",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(), help_text="Their tasks, in order; empty until they are made.",
                        null=True, size=None,
                    ),
                ),
                (
                    "open",
                    models.BooleanField(
                        db_default=True, default=True, help_text="It has not ended, or upkeep does not know yet."
                    ),
                ),
                (
                    "retry_at",
                    models.DateTimeField(
                        help_text="A limit of the plan was met: its elements are made later.", null=True
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE,
                        related_name="+", to="slackwater_tenants.tenant",
                    ),
                ),
            ],
            options={
                "abstract": False,
                "base_manager_name": "_plain",
                "indexes": [
                    models.Index(condition=models.Q(("open", True)), fields=["task"], name="slackwater_mapnode_open")
                ],
            },
            managers=[
                ("objects", django.db.models.manager.Manager()),
                ("_plain", django.db.models.manager.Manager()),
            ],
        ),
    ]
