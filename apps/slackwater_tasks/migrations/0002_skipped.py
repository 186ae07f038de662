"""The state and the outcome of a branch not taken."""

from django.db import migrations, models
from django.db.models import Q

from scheduler_ext.core.states import EdgeOutcome

STATES = list(
    enumerate(
        "blocked scheduled ready queued running succeeded failed cancelled expired skipped".split(),  # noqa: SIM905
        start=1,
    )
)
OUTCOMES = list(enumerate(("pending", "succeeded", "failed", "cancelled", "skipped")))
FINAL = [6, 7, 8, 9, 10]
CONSTRAINT = """
ALTER TABLE slackwater_tasks_task DROP CONSTRAINT IF EXISTS slackwater_task_final_state,
    ADD CONSTRAINT slackwater_task_final_state CHECK (state IS NULL OR state IN ({})) NOT VALID
"""
VALIDATE = "ALTER TABLE slackwater_tasks_task VALIDATE CONSTRAINT slackwater_task_final_state"
# The release before knows no skipped task: to it, it is a cancelled one.
CANCELLED = [
    "UPDATE slackwater_tasks_taskevent SET to_state = 8 WHERE to_state = 10",
    "UPDATE slackwater_tasks_taskevent SET from_state = 8 WHERE from_state = 10",
    "UPDATE slackwater_tasks_outbox SET state = 8, events = events & ~2048 WHERE state = 10 OR events & 2048 <> 0",
    "UPDATE slackwater_tasks_listener SET events = events & ~2048 WHERE events & 2048 <> 0",
    "UPDATE slackwater_tasks_dependency SET outcome = 3 WHERE outcome = 4",
    "UPDATE slackwater_tasks_task SET state = 8 WHERE state = 10",
]


class Migration(migrations.Migration):
    """Each statement stands for itself and can be repeated; the check is validated beside the work."""

    atomic = False
    dependencies = [("slackwater_tasks", "0001_initial")]
    operations = [
        migrations.AlterField(
            "dependency",
            "outcome",
            models.PositiveSmallIntegerField(choices=OUTCOMES, default=EdgeOutcome.PENDING),
        ),
        migrations.AlterField("livetask", "state", models.SmallIntegerField(choices=STATES)),
        migrations.AlterField("outbox", "state", models.PositiveSmallIntegerField(choices=STATES)),
        migrations.AlterField(
            "task",
            "state",
            models.SmallIntegerField(choices=STATES, help_text="Final state; empty while live.", null=True),
        ),
        migrations.AlterField("taskevent", "from_state", models.PositiveSmallIntegerField(choices=STATES, null=True)),
        migrations.AlterField("taskevent", "to_state", models.PositiveSmallIntegerField(choices=STATES)),
        migrations.SeparateDatabaseAndState(
            [
                migrations.RunSQL(CONSTRAINT.format("6, 7, 8, 9, 10"), CONSTRAINT.format("6, 7, 8, 9")),
                migrations.RunSQL(VALIDATE, CANCELLED),
            ],
            [
                migrations.RemoveConstraint("task", "slackwater_task_final_state"),
                migrations.AddConstraint(
                    "task",
                    models.CheckConstraint(
                        condition=Q(state__isnull=True) | Q(state__in=FINAL), name="slackwater_task_final_state"
                    ),
                ),
            ],
        ),
    ]
