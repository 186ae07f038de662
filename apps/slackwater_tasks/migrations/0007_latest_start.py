"""The latest start stays with a task that has ended."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("slackwater_tasks", "0006_first_answers")]
    operations = [
        migrations.AddField(
            "task",
            "latest_start",
            models.DateTimeField(null=True, blank=True, help_text="Until when it was to start."),
        ),
    ]
