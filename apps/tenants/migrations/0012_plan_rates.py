"""Execution rates that plans give."""

from __future__ import annotations

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0011_operate_scope")]

    operations = [
        migrations.AddField(
            model_name="plan",
            name="rate_starts",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="At most so many of a tenant's tasks start in any span of the seconds beside it; empty: any.",
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(1),
                    django.core.validators.MaxValueValidator(100000),
                ],
                verbose_name="execution rate: starts",
            ),
        ),
        migrations.AddField(
            model_name="plan",
            name="rate_per_s",
            field=models.PositiveIntegerField(
                db_default=60,
                default=60,
                help_text="Exact over all nodes. Each tenant of the plan has the rate for itself.",
                validators=[
                    django.core.validators.MinValueValidator(1),
                    django.core.validators.MaxValueValidator(2678400),
                ],
                verbose_name="execution rate: seconds",
            ),
        ),
    ]
