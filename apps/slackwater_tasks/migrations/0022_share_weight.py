"""Workflows with a share of their own, and their lines."""

from django.db import migrations, models

# Back: what stands in a workflow's line goes to the line of all else; such lines are made first where there are none.
JOIN = """
SET CONSTRAINTS ALL IMMEDIATE;
INSERT INTO slackwater_tasks_line (tenant_id, category, tier_id, require_labels, prefer_labels, workflow, paused)
SELECT DISTINCT tenant_id, category, tier_id, require_labels, prefer_labels, '', false FROM slackwater_tasks_line
WHERE workflow <> '' ON CONFLICT DO NOTHING;
UPDATE slackwater_tasks_livetask l SET line_id = n.id FROM slackwater_tasks_line w JOIN slackwater_tasks_line n
    USING (tenant_id, category, tier_id, require_labels, prefer_labels)
WHERE l.line_id = w.id AND w.workflow <> '' AND n.workflow = '';
DELETE FROM slackwater_tasks_line WHERE workflow <> '';
SET CONSTRAINTS ALL DEFERRED
"""
KEYS = ["tenant", "category", "tier", "require_labels", "prefer_labels"]


class Migration(migrations.Migration):
    dependencies = [("slackwater_tasks", "0021_shadow")]
    operations = [
        migrations.AddField(
            "workflow",
            "share_weight",
            models.PositiveSmallIntegerField(
                null=True, help_text="As a member of its tenant's share: its weight; empty: it is none."
            ),
        ),
        migrations.AddField(
            "line",
            "workflow",
            models.CharField(
                max_length=36, blank=True, default="", db_default="",
                help_text="The workflow with a share of its own, by its id.",
            ),
        ),
        migrations.RemoveConstraint("line", "slackwater_line_alike"),
        migrations.AddConstraint(
            "line", models.UniqueConstraint(fields=[*KEYS, "workflow"], name="slackwater_line_alike")
        ),
        migrations.RunSQL(migrations.RunSQL.noop, JOIN),
    ]
