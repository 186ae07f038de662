"""How many of a workflow's tasks are with nodes at a time."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("slackwater_tasks", "0018_running_at")]
    operations = [
        migrations.AddField(
            "workflow",
            "max_running",
            models.PositiveIntegerField(null=True, help_text="Of its tasks, with nodes at a time."),
        ),
    ]
