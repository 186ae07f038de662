# What had been several migrations, in one: the same schema, column by column.

import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

from slackwater_tenants.price_list import TIER_HOUR_MICROS

TIERS = {
    "basic": {"cpu_milli": 250, "memory_mb": 256, "disk_mb": 512, "iops": 100, "bandwidth_kbps": 10_000, "ports": 0},
    "regular": {"cpu_milli": 500, "memory_mb": 1_024, "disk_mb": 2_048, "iops": 500, "bandwidth_kbps": 50_000, "ports": 1},
    "premium": {"cpu_milli": 1_000, "memory_mb": 4_096, "disk_mb": 10_240, "iops": 2_000, "bandwidth_kbps": 100_000, "ports": 4},
}
CAPS = {"basic": 300, "regular": 1_800, "premium": 7_200}


def create_shared_tiers(apps, schema_editor):
    """The three shared tiers every installation begins with; an administrator may edit them."""
    tier = apps.get_model("slackwater_resources", "Tier")
    for slug, vector in TIERS.items():
        defaults = {**vector, "default_cap_s": CAPS[slug], "price_micros_per_hour": TIER_HOUR_MICROS.get(slug, 0)}
        tier.objects.get_or_create(slug=slug, tenant=None, defaults=defaults)


class Migration(migrations.Migration):

    # What came before it was split over these: a database that has them all is up to date.
    replaces = [
        ('slackwater_resources', '0001_initial'),
        ('slackwater_resources', '0002_handler_schema'),
        ('slackwater_resources', '0003_handler_terms'),
        ('slackwater_resources', '0004_prices'),
        ('slackwater_resources', '0005_awaited_handler'),
        ('slackwater_resources', '0006_starting'),
        ('slackwater_resources', '0007_derived'),
    ]

    initial = True

    dependencies = [
        ('slackwater_tenants', '0001_squashed_0012'),
    ]

    operations = [
        migrations.CreateModel(
            name='Component',
            fields=[
                ('id', models.AutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('submitter', 'Submitter'), ('dispatcher', 'Dispatcher'), ('upkeep', 'Upkeep'), ('beat', 'Beat')], max_length=16)),
                ('cell', models.CharField(max_length=63)),
                ('hostname', models.CharField(max_length=200)),
                ('pid', models.IntegerField(verbose_name='process')),
                ('started_at', models.DateTimeField()),
                ('beat_at', models.DateTimeField(verbose_name='last heard')),
                ('left_at', models.DateTimeField(help_text='It said that it ends.', null=True, verbose_name='left')),
            ],
            options={
                'ordering': ['kind', 'cell', '-id'],
            },
        ),
        migrations.CreateModel(
            name='Handler',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=200, unique=True)),
                ('kind', models.CharField(default='process', max_length=16)),
                ('idempotent', models.BooleanField(default=False)),
                ('checkpoints', models.BooleanField(db_default=False, default=False, help_text='Its tasks save checkpoints, and yield when they are asked to.')),
                ('description', models.TextField(blank=True)),
                ('paused', models.BooleanField(default=False)),
                ('first_seen_at', models.DateTimeField(auto_now_add=True)),
                ('schema', models.JSONField(help_text='Of its arguments, as its workers publish it; empty: anything.', null=True)),
                ('defaults', models.JSONField(blank=True, db_default={}, default=dict, help_text='Fields of its tasks, unless their submission says otherwise.')),
                ('rate', models.JSONField(editable=False, help_text='The execution rate it declares: starts, seconds.', null=True)),
                ('repeats', models.PositiveSmallIntegerField(choices=[(0, 'always'), (1, 'lost'), (2, 'asked')], db_default=0, default=0, help_text='After which ends of a run it may be run again.')),
                ('awaited', models.BooleanField(db_default=False, default=False, editable=False, help_text='Declared by who submits, and exported by no worker yet: its tasks wait for the first.')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Node',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=200)),
                ('hostname', models.CharField(max_length=200)),
                ('incarnation', models.UUIDField(unique=True)),
                ('cell', models.CharField(default='default', max_length=63)),
                ('state', models.CharField(choices=[('starting', 'starting: its agent is not there yet'), ('active', 'Active'), ('draining', 'draining: finishes, gets nothing new'), ('left', 'Left'), ('lost', 'Lost')], default='active', max_length=16)),
                ('capacity', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), help_text='CPU ‰, memory MiB, disk MiB, IOPS, kbit/s, ports', size=6)),
                ('slots', models.JSONField(default=dict, help_text='How many tasks of each kind it runs at once.')),
                ('labels', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), blank=True, default=list, size=None)),
                ('handlers', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), blank=True, default=list, size=None)),
                ('sandbox', models.CharField(default='process', max_length=32)),
                ('enforced', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=16), blank=True, db_default=[], default=list, help_text='What of its tier a script is held to there.', size=None)),
                ('stats', models.JSONField(blank=True, default=dict)),
                ('started_at', models.DateTimeField()),
                ('heartbeat_at', models.DateTimeField()),
                ('lease_expires_at', models.DateTimeField()),
            ],
            options={
                'ordering': ['-started_at'],
                'indexes': [models.Index(condition=models.Q(('state__in', ['starting', 'active', 'draining'])), fields=['cell'], name='slackwater_node_live')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state__in', ['starting', 'active', 'draining'])), fields=('cell', 'name'), name='slackwater_node_one_incarnation')],
            },
        ),
        migrations.CreateModel(
            name='Tier',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.CharField(max_length=63, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9-]{0,62}$', 'Lower-case letters, digits and dashes, at most 63.')])),
                ('cpu_milli', models.PositiveIntegerField(validators=[django.core.validators.MinValueValidator(1)], verbose_name='CPU (thousandths)')),
                ('memory_mb', models.PositiveIntegerField(validators=[django.core.validators.MinValueValidator(1)], verbose_name='memory (MiB)')),
                ('disk_mb', models.PositiveIntegerField(default=0, verbose_name='disk (MiB)')),
                ('iops', models.PositiveIntegerField(default=0, verbose_name='IOPS')),
                ('bandwidth_kbps', models.PositiveIntegerField(default=0, verbose_name='network bandwidth (kbit/s)')),
                ('ports', models.PositiveIntegerField(default=0)),
                ('default_cap_s', models.PositiveIntegerField(default=600, validators=[django.core.validators.MinValueValidator(1)], verbose_name='execution cap (s)')),
                ('retired_at', models.DateTimeField(blank=True, editable=False, help_text='Since then it can be named no more; the tasks that have it keep it.', null=True)),
                ('price_micros_per_hour', models.PositiveBigIntegerField(default=0, help_text='In millionths of the unit you charge in.', verbose_name='price of an hour (millionths)')),
                ('tenant', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='tiers', to='slackwater_tenants.tenant')),
                ('derived', models.BooleanField(db_default=False, default=False, editable=False, help_text='Made of another for tasks that named other resources; no list shows it.')),
            ],
            options={
                'ordering': ['cpu_milli', 'slug'],
                'constraints': [models.UniqueConstraint(fields=('slug', 'tenant'), name='slackwater_tier_unique', nulls_distinct=False), models.CheckConstraint(condition=models.Q(('cpu_milli__gte', 1), ('memory_mb__gte', 1)), name='slackwater_tier_not_empty')],
            },
        ),
        migrations.RunPython(create_shared_tiers, migrations.RunPython.noop),
    ]
