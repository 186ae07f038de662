"""Workflows with parameters, stored by name and version."""

import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("slackwater_tasks", "0012_expire_metadata_found"), ("slackwater_tenants", "0001_initial")]
    operations = [
        migrations.CreateModel(
            name="WorkflowTemplate",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100)),
                ("version", models.PositiveIntegerField()),
                ("description", models.CharField(blank=True, max_length=500)),
                ("parameters", models.JSONField(help_text="JSON Schema of the object of parameters.")),
                ("workflow", models.JSONField(help_text='What is submitted; {"$param": NAME} stands for a parameter.')),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("created_by", models.CharField(blank=True, max_length=120)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="workflow_templates",
                        to="slackwater_tenants.tenant",
                    ),
                ),
            ],
            options={"ordering": ["name", "-version"], "abstract": False, "base_manager_name": "_plain"},
            managers=[
                ("objects", django.db.models.manager.Manager()),
                ("_plain", django.db.models.manager.Manager()),
            ],
        ),
        migrations.AddConstraint(
            "workflowtemplate",
            models.UniqueConstraint(fields=("tenant", "name", "version"), name="slackwater_template_version"),
        ),
    ]  # fmt: skip
