from django.db import migrations, models


class Migration(migrations.Migration):
    """Subscriptions whose address each task names."""

    dependencies = [("monitoring", "0001_notify"), ("tasks", "0010_task_webhooks")]

    operations = [
        migrations.RemoveConstraint("subscription", "subscription_has_its_address"),
        migrations.AddField(
            "delivery",
            "url",
            models.CharField(blank=True, db_default="", default="", help_text="The task's own address.", max_length=2000),
        ),
        migrations.AlterField(
            "subscription",
            "channel",
            models.CharField(choices=[("webhook", "Webhook"), ("email", "Email"), ("task", "the task's own address")], default="webhook", max_length=8),
        ),
        migrations.AddConstraint(
            "subscription",
            models.CheckConstraint(
                condition=models.Q(("channel__in", ["email", "task"]), ("url", ""))
                | models.Q(("channel", "webhook"), models.Q(("url", ""), _negated=True)),
                name="subscription_has_its_address",
            ),
        ),
    ]
