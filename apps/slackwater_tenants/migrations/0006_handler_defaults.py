"""Category and tolerance by handler, as a plan has them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A column with a default of the database: no row is rewritten."""

    dependencies = [("slackwater_tenants", "0005_price_list")]
    operations = [
        migrations.AddField(
            "plan",
            "handler_defaults",
            models.JSONField(
                blank=True,
                db_default={},
                default=dict,
                help_text='By pattern of names: {"mail.*": {"category": "urgent", "delay_tolerance_s": 5}}. They go before '
                "what the handler declares; of several that match the last holds, and what a submission says goes before all.",
                verbose_name="defaults by handler",
            ),
        )
    ]
