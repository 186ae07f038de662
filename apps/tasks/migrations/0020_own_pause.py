"""Whether a line was paused by its tenant: then the tenant may end the pause, and only then."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tasks", "0019_no_checks_of_signs")]

    operations = [
        migrations.AddField(
            model_name="line",
            name="paused_by_itself",
            field=models.BooleanField(
                db_default=False, default=False, help_text="By its tenant, which may end the pause."
            ),
        ),
    ]
