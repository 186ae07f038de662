"""What tenants and pools have used lately."""

from __future__ import annotations

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tasks", "0016_lets_by")]

    operations = [
        migrations.CreateModel(
            name="PastUse",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "cell", "name", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("cell", models.CharField(max_length=63)),
                ("name", models.CharField(help_text="Like 'tenant 7' or 'pool org/team'.", max_length=400)),
                (
                    "amount",
                    models.FloatField(help_text="Cell-seconds: the whole cell, held for a second, is one."),
                ),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
    ]
