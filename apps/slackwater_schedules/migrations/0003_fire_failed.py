from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Built beside the work: many firings may be there."""

    atomic = False
    dependencies = [("slackwater_schedules", "0002_workflows")]
    operations = [
        AddIndexConcurrently(
            "schedulefire",
            models.Index(
                condition=models.Q(("outcome", "failed")), fields=["fired_at"], name="slackwater_fire_failed"
            ),
        ),
    ]
