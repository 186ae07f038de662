from django.db import migrations


class Migration(migrations.Migration):
    """The names that became teams go: in a step of its own, for data and schema do not change in one transaction."""

    dependencies = [("tenants", "0007_teams")]

    operations = [migrations.RemoveField("membership", "team_name")]
