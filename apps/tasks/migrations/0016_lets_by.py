"""Whom a running task was asked to make room for."""

from __future__ import annotations

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tasks", "0015_traces")]

    operations = [
        migrations.AddField(
            model_name="resumable",
            name="lets_by",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.UUIDField(),
                help_text="The tasks it was asked to make room for: it starts after them.",
                null=True,
                size=None,
            ),
        ),
    ]
