"""Forecasts that were shown, until they are checked; and how many held, by cell."""

from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [("slackwater_tasks", "0015_paths")]
    operations = [
        migrations.CreateModel(
            name="Forecast",
            fields=[
                ("task_id", models.UUIDField(primary_key=True, serialize=False)),
                ("cell", models.CharField(db_index=True, max_length=63)),
                ("fence", models.IntegerField(help_text="The task's then: a start has a higher one.")),
                ("earliest", models.DateTimeField()),
                ("latest", models.DateTimeField()),
                ("shown_at", models.DateTimeField(db_default=Now())),
            ],
        ),
        migrations.CreateModel(
            name="ForecastRecord",
            fields=[
                ("cell", models.CharField(max_length=63, primary_key=True, serialize=False)),
                ("hits", models.FloatField(db_default=0, default=0)),
                ("early", models.FloatField(db_default=0, default=0)),
                ("late", models.FloatField(db_default=0, default=0)),
                ("early_factor", models.FloatField(db_default=1, default=1)),
                ("late_factor", models.FloatField(db_default=1, default=1)),
            ],
        ),
    ]
