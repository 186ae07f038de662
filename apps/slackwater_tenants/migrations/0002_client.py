"""Whose a tenant is, where a client has several."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    """A column with a default of the database: no row is rewritten."""

    dependencies = [("slackwater_tenants", "0001_initial")]
    operations = [
        migrations.AddField(
            "tenant",
            "client",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Whose it is, where a client has several: tenants without a pool that name one client share as "
                "one tenant.",
                max_length=63,
                validators=[
                    django.core.validators.RegexValidator(
                        "^[a-z0-9][a-z0-9-]{0,62}$", "Lower-case letters, digits and dashes, at most 63."
                    )
                ],
            ),
        ),
    ]
