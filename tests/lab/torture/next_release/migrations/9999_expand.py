"""A column that may be empty, and an index made beside the work: both can be taken back under load."""

from pkgutil import iter_modules

from django.db import migrations

from slackwater_tasks import migrations as present

PRESENT = max(found.name for found in iter_modules(present.__path__))
"""The last migration of this release."""


class Migration(migrations.Migration):
    """Each statement stands for itself: one that waited too long is tried again with what came before it."""

    atomic = False
    dependencies = [("slackwater_tasks", PRESENT)]
    operations = [
        migrations.RunSQL(
            "ALTER TABLE slackwater_tasks_task ADD COLUMN IF NOT EXISTS next_note text",
            "ALTER TABLE slackwater_tasks_task DROP COLUMN IF EXISTS next_note",
        ),
        migrations.RunSQL(
            "ALTER TABLE slackwater_tasks_livetask ADD COLUMN IF NOT EXISTS next_flag smallint NOT NULL DEFAULT 0",
            "ALTER TABLE slackwater_tasks_livetask DROP COLUMN IF EXISTS next_flag",
        ),
        migrations.RunSQL(
            "DROP INDEX CONCURRENTLY IF EXISTS slackwater_tasks_next_note", migrations.RunSQL.noop
        ),  # what a try before left unfinished
        migrations.RunSQL(
            "CREATE INDEX CONCURRENTLY slackwater_tasks_next_note ON slackwater_tasks_task (tenant_id)"
            " WHERE next_note IS NOT NULL",
            "DROP INDEX CONCURRENTLY IF EXISTS slackwater_tasks_next_note",
        ),
    ]
