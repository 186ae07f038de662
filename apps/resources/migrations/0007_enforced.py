import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("resources", "0006_components"),
    ]

    operations = [
        migrations.AddField(
            model_name="node",
            name="enforced",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=16), blank=True, db_default=[], default=list,
                help_text="What of its tier a script is held to there.", size=None,
            ),
        ),
    ]
