"""An idempotency key of a plain list remembers all its ids."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    """Schema only."""

    dependencies = [
        ("tasks", "0002_storage"),
    ]

    operations = [
        migrations.AddField(
            model_name="idempotencykey",
            name="task_ids",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.UUIDField(),
                help_text="Of several handed in without a workflow.",
                null=True,
                size=None,
            ),
        ),
    ]
