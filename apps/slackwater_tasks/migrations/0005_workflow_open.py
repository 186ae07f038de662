from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Built beside the work: many workflows may be there."""

    atomic = False
    dependencies = [("slackwater_tasks", "0004_workflows_end")]
    operations = [
        AddIndexConcurrently(
            "workflow",
            models.Index(condition=models.Q(("status__isnull", True)), fields=["id"], name="slackwater_workflow_open"),
        ),
    ]
