"""A node that starts says so, and is one of those alive."""

from django.db import migrations, models
from django.db.models import Q

ALIVE = ["starting", "active", "draining"]


class Migration(migrations.Migration):
    dependencies = [("slackwater_resources", "0005_awaited_handler")]
    operations = [
        migrations.AlterField(
            "node",
            "state",
            models.CharField(
                choices=[
                    ("starting", "starting: its agent is not there yet"), ("active", "Active"),
                    ("draining", "draining: finishes, gets nothing new"), ("left", "Left"), ("lost", "Lost"),
                ],
                default="active", max_length=16,
            ),
        ),
        migrations.RemoveConstraint("node", "slackwater_node_one_incarnation"),
        migrations.AddConstraint(
            "node",
            models.UniqueConstraint(
                fields=["cell", "name"], condition=Q(state__in=ALIVE), name="slackwater_node_one_incarnation"
            ),
        ),
        migrations.RemoveIndex("node", "slackwater_node_live"),
        migrations.AddIndex(
            "node", models.Index(fields=["cell"], name="slackwater_node_live", condition=Q(state__in=ALIVE))
        ),
    ]  # fmt: skip
