"""Labels of nodes that tasks require or prefer; what asks for the same stands in a line of its own."""

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models

# Back: one line again for each tenant, category and tier.
JOIN = """
SET CONSTRAINTS ALL IMMEDIATE;
CREATE TEMPORARY TABLE joined ON COMMIT DROP AS
SELECT id, first FROM (
    SELECT id, min(id) OVER (PARTITION BY tenant_id, category, tier_id) AS first FROM slackwater_tasks_line) n WHERE id <> first;
UPDATE slackwater_tasks_livetask l SET line_id = joined.first FROM joined WHERE l.line_id = joined.id;
DELETE FROM slackwater_tasks_line n USING joined WHERE n.id = joined.id;
SET CONSTRAINTS ALL DEFERRED
"""


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
        migrations.RunSQL(migrations.RunSQL.noop, JOIN),
    ]
