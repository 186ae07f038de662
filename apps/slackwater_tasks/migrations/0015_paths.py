"""What a task of a graph has before it, by which its order goes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("slackwater_tasks", "0014_labels")]
    operations = [
        migrations.AddField(
            "livetask",
            "path_us",
            models.BigIntegerField(null=True, help_text="Of a graph: the longest way from its start to an end."),
        ),
        migrations.AddField(
            "livetask",
            "work_us",
            models.BigIntegerField(null=True, help_text="Of a graph: all the work that it brought."),
        ),
    ]
