"""Limits that are kept as the tenant's plan says stand beside those of operators and of the tenant itself."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tasks", "0017_past_use"), ("tenants", "0012_plan_rates")]

    operations = [
        migrations.AddField(
            model_name="ratelimit",
            name="of_plan",
            field=models.BooleanField(
                db_default=False,
                default=False,
                editable=False,
                help_text="Kept as the tenant's plan says.",
            ),
        ),
        migrations.RemoveConstraint(model_name="ratelimit", name="rate_once"),
        migrations.AddConstraint(
            model_name="ratelimit",
            constraint=models.UniqueConstraint(
                fields=("tenant", "handler", "key", "per_s", "of_plan"),
                name="rate_once",
                nulls_distinct=False,
            ),
        ),
    ]
