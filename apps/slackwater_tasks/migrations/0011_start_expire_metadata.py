"""What a task may be given beside: until when it is to start at all, and metadata of its submitter's."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("slackwater_tasks", "0010_uploads")]
    operations = [
        migrations.AddField(
            "task",
            "expires_at",
            models.DateTimeField(null=True, blank=True, help_text="Not started by then, it expires."),
        ),
        migrations.AddField(
            "task",
            "metadata",
            models.JSONField(null=True, blank=True, help_text="Names and texts of its submitter's."),
        ),
        migrations.AddField(
            "task",
            "copied_from",
            models.UUIDField(null=True, blank=True, help_text="The ended task it was made from, edited."),
        ),
        migrations.AddField(
            "livetask",
            "expires_at",
            models.DateTimeField(
                null=True, help_text="Not started by then, it expires; empty once it started."
            ),
        ),
    ]
