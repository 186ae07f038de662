import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import apps.tenants.models


def make_teams(apps_then, schema_editor):
    """Each name a member had as its team becomes a team of the tenant."""
    Team = apps_then.get_model("tenants", "Team")
    Membership = apps_then.get_model("tenants", "Membership")
    rows = Membership.objects.exclude(team_name="").order_by("tenant_id", "team_name", "id")
    made = {}
    for row in rows.iterator():
        key = (row.tenant_id, row.team_name)
        if key not in made:
            number = sum(1 for tenant_id, _ in made if tenant_id == row.tenant_id) + 1
            made[key] = Team.objects.create(tenant_id=row.tenant_id, slug=f"team-{number}", name=row.team_name)
        row.team = made[key]
        row.save(update_fields=["team"])


def name_teams(apps_then, schema_editor):
    """Back: the team's name stands with the member."""
    Membership = apps_then.get_model("tenants", "Membership")
    for row in Membership.objects.exclude(team=None).select_related("team").iterator():
        row.team_name = row.team.name[:63]
        row.save(update_fields=["team_name"])


class Migration(migrations.Migration):
    """Teams, keys of members, tiers of a client's own."""

    dependencies = [("tenants", "0006_pools")]

    operations = [
        migrations.AddField(
            "plan",
            "largest_tier",
            models.JSONField(default=apps.tenants.models.default_largest_tier, help_text="By resource; one not named may not be had.", verbose_name="largest own tier"),
        ),
        migrations.AddField(
            "plan",
            "max_own_tiers",
            models.PositiveIntegerField(default=10, help_text="How many tiers of its own a client may have.", verbose_name="own tiers"),
        ),
        migrations.CreateModel(
            "Team",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("slug", models.CharField(max_length=63, validators=[django.core.validators.RegexValidator("^[a-z0-9][a-z0-9-]{0,62}$", "Lower-case letters, digits and dashes, at most 63.")])),
                ("name", models.CharField(max_length=120)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="teams", to="tenants.tenant")),
            ],
            options={"ordering": ["slug"]},
        ),
        migrations.AddConstraint("team", models.UniqueConstraint(fields=("tenant", "slug"), name="team_unique")),
        migrations.AlterModelOptions("membership", {"ordering": ["id"]}),
        migrations.AddField(
            "membership", "created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())
        ),
        migrations.RenameField("membership", "team", "team_name"),
        migrations.AddField(
            "membership",
            "team",
            models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="memberships", to="tenants.team"),
        ),
        migrations.RunPython(make_teams, name_teams),
        migrations.AddField(
            "apikey",
            "member",
            models.ForeignKey(blank=True, help_text="Whose it is: it can do no more than this member's role allows, and goes with the member.", null=True, on_delete=django.db.models.deletion.CASCADE, related_name="api_keys", to="tenants.membership"),
        ),
    ]
