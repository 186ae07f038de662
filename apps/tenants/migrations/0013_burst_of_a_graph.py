"""The largest graph that the standard plan allows can be handed in: it counts as so many submissions at once."""

from __future__ import annotations

from django.db import migrations, models

RAISE = """
UPDATE tenants_plan SET burst = 20000 WHERE slug = 'standard' AND burst = 10000 AND max_dag_tasks = 20000
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0012_plan_rates")]

    operations = [
        migrations.AlterField(
            model_name="plan",
            name="burst",
            field=models.PositiveIntegerField(
                default=20_000,
                help_text="Submissions at once; each task of a graph is one, so the largest must fit.",
            ),
        ),
        migrations.RunSQL(RAISE, migrations.RunSQL.noop),
    ]
