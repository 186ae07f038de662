"""Labels of nodes that tasks require or prefer; what asks for the same stands in a line of its own."""

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models


def _of_line() -> ArrayField:
    return ArrayField(models.CharField(max_length=63), blank=True, db_default=[], default=list)


class Migration(migrations.Migration):
    """Empty columns and defaults of the database: no row is rewritten. Lines are few."""

    dependencies = [("slackwater_tasks", "0013_workflow_templates")]
    operations = [
        migrations.AddField(
            "task",
            "require_labels",
            ArrayField(
                models.CharField(max_length=63),
                blank=True,
                null=True,
                help_text="What a node must have. Empty for most.",
            ),
        ),
        migrations.AddField(
            "task", "prefer_labels", ArrayField(models.CharField(max_length=63), blank=True, null=True)
        ),
        migrations.AddField("line", "require_labels", _of_line()),
        migrations.AddField("line", "prefer_labels", _of_line()),
        migrations.AddConstraint(
            "line",
            models.UniqueConstraint(
                fields=["tenant", "category", "tier", "require_labels", "prefer_labels"], name="slackwater_line_alike"
            ),
        ),
        migrations.RemoveConstraint("line", "slackwater_line_unique"),
    ]
