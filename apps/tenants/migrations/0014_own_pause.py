"""Whether a tenant paused itself: then it may end the pause, and only then."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0013_burst_of_a_graph")]

    operations = [
        migrations.AddField(
            model_name="tenant",
            name="paused_by_itself",
            field=models.BooleanField(
                db_default=False, default=False, help_text="By its owner, who may end the pause."
            ),
        ),
    ]
