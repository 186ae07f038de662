"""How many claims were taken back from a busy node because another idled."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("slackwater_tasks", "0016_forecasts")]
    operations = [
        migrations.AddField(
            "leader",
            "stolen",
            models.BigIntegerField(
                default=0, db_default=0, help_text="Claims that were taken back from a busy node because another idled."
            ),
        ),
        migrations.AlterField(
            "livetask",
            "last_node",
            models.IntegerField(null=True, help_text="Where its last attempt failed, or its claim was taken back."),
        ),
    ]
