from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Built beside the work: many tasks may be there."""

    atomic = False
    dependencies = [("slackwater_tasks", "0011_start_expire_metadata")]
    operations = [
        AddIndexConcurrently(
            "livetask",
            models.Index(
                condition=models.Q(("expires_at__isnull", False)),
                fields=["expires_at"],
                name="slackwater_live_expires",
            ),
        ),
        AddIndexConcurrently(
            "task",
            GinIndex(
                condition=models.Q(("metadata__isnull", False)),
                fields=["metadata"],
                name="slackwater_task_metadata",
                opclasses=["jsonb_path_ops"],
            ),
        ),
    ]
