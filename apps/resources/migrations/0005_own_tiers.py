from django.db import migrations, models


class Migration(migrations.Migration):
    """Tiers that can be named no more."""

    dependencies = [("resources", "0004_checkpoints")]

    operations = [
        migrations.AddField(
            "tier",
            "retired_at",
            models.DateTimeField(blank=True, editable=False, help_text="Since then it can be named no more; the tasks that have it keep it.", null=True),
        ),
    ]
