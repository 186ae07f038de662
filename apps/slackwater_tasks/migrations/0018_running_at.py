"""An attempt keeps the moment of which its beginning was told."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("slackwater_tasks", "0017_stolen")]
    operations = [
        migrations.AddField(
            "attempt",
            "running_at",
            models.DateTimeField(
                null=True, help_text="Since when its state was running; it started after those before it in its batch."
            ),
        ),
    ]
