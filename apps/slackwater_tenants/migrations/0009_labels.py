"""Labels of nodes that a plan requires or prefers for its tasks."""

from django.contrib.postgres.fields import ArrayField
from django.core.validators import RegexValidator
from django.db import migrations, models

LABEL = RegexValidator(r"^[^\s,=]+(=[^\s,=]+)?$", "NAME or NAME=VALUE, without spaces and commas.")


def _labels(text: str) -> ArrayField:
    return ArrayField(
        models.CharField(max_length=63, validators=[LABEL]),
        blank=True,
        db_default=[],
        default=list,
        help_text=text,
    )


class Migration(migrations.Migration):
    """Columns with a default of the database: no row is rewritten."""

    dependencies = [("slackwater_tenants", "0008_uploads")]
    operations = [
        migrations.AddField(
            "plan",
            "require_labels",
            _labels("Its tasks run only on nodes with all of these labels: pool=shared. From the next submission on."),
        ),
        migrations.AddField(
            "plan",
            "prefer_labels",
            _labels("Of the nodes with room, those that have most of them come first."),
        ),
    ]
