import django.db.models.deletion
import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):
    """Tasks that say themselves where their events go."""

    dependencies = [("tasks", "0009_pools"), ("tenants", "0007_teams")]

    operations = [
        migrations.AddField(
            "listener",
            "tells_tasks",
            models.BooleanField(db_default=False, default=False, help_text="Its tasks may name an address of their own."),
        ),
        migrations.CreateModel(
            "TaskWebhook",
            [
                ("task", models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name="+", serialize=False, to="tasks.task")),
                ("url", models.CharField(max_length=2000)),
                ("tenant", models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenants.tenant")),
            ],
            options={"base_manager_name": "_plain"},
            managers=[
                ("objects", django.db.models.manager.Manager()),
                ("_plain", django.db.models.manager.Manager()),
            ],
        ),
    ]
