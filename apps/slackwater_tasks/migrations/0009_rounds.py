"""How much rounds could claim lately, did, and why not more."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("slackwater_tasks", "0008_run_times")]
    operations = [
        migrations.AddField(
            "leader",
            "rounds",
            models.JSONField(null=True, help_text="How much rounds could claim lately, did, and why not more."),
        ),
    ]
