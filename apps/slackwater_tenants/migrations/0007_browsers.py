"""What pages in browsers need: the origins of a key, and tickets for streams."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """A column with a default of the database, and a small table."""

    dependencies = [("slackwater_tenants", "0006_handler_defaults")]
    operations = [
        migrations.AddField(
            "apikey",
            "origins",
            django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=200),
                blank=True,
                db_default=[],
                default=list,
                help_text="Origins whose pages may read what it is answered, for example https://app.example.org.",
                size=None,
            ),
        ),
        migrations.CreateModel(
            name="StreamTicket",
            fields=[
                ("digest", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("path", models.CharField(max_length=200)),
                ("expires_at", models.DateTimeField()),
                (
                    "key",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="tickets",
                        to="slackwater_tenants.apikey",
                    ),
                ),
            ],
        ),
    ]
