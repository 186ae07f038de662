import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0010_refusals"),
    ]

    operations = [
        migrations.AlterField(
            model_name="apikey",
            name="scopes",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(
                    choices=[
                        ("submit", "Submit"),
                        ("read", "Read"),
                        ("cancel", "Cancel"),
                        ("manage", "Manage"),
                        ("operate", "Operate"),
                    ],
                    max_length=16,
                ),
                default=list,
                size=None,
            ),
        ),
    ]
