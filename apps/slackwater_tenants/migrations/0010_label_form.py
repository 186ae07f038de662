"""Labels without characters that steer a terminal; nothing is changed in the database."""

from django.contrib.postgres.fields import ArrayField
from django.core.validators import RegexValidator
from django.db import migrations, models

WORD = r"[^\s,=\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+"
LABEL = RegexValidator(rf"^{WORD}(={WORD})?$", "NAME or NAME=VALUE, without spaces and commas.")


def labels(told):
    base = models.CharField(max_length=63, validators=[LABEL])
    return ArrayField(base, blank=True, db_default=[], default=list, help_text=told, size=None)


class Migration(migrations.Migration):
    dependencies = [("slackwater_tenants", "0009_labels")]
    operations = [
        migrations.AlterField("plan", "prefer_labels", labels("Of the nodes with room, those that have most of them come first.")),
        migrations.AlterField("plan", "require_labels", labels("Its tasks run only on nodes with all of these labels: pool=shared. From the next submission on.")),
    ]
