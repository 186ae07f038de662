# What had been several migrations, in one: the same schema, column by column.

import django.contrib.postgres.fields
import django.contrib.postgres.functions
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import slackwater_tenants.models
from django.conf import settings
from django.db import migrations, models

from slackwater_tenants.price_list import ship

# One row for each tenant, written by each submission: room for updates in place, and vacuum that follows closely.
STORAGE = """
ALTER TABLE slackwater_tenants_tenantcounter SET (
    fillfactor = 10, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0)
"""


def create_plans(apps, schema_editor):
    """The plans that ship; an administrator may edit them, and delete those that nobody is on."""
    ship(apps.get_model("slackwater_tenants", "Plan"))


class Migration(migrations.Migration):

    # What came before it was split over these: a database that has them all is up to date.
    replaces = [
        ('slackwater_tenants', '0001_initial'),
        ('slackwater_tenants', '0002_client'),
        ('slackwater_tenants', '0003_output'),
        ('slackwater_tenants', '0004_membership_public_id'),
        ('slackwater_tenants', '0005_price_list'),
        ('slackwater_tenants', '0006_handler_defaults'),
        ('slackwater_tenants', '0007_browsers'),
        ('slackwater_tenants', '0008_uploads'),
        ('slackwater_tenants', '0009_labels'),
        ('slackwater_tenants', '0010_label_form'),
        ('slackwater_tenants', '0011_submitted'),
        ('slackwater_tenants', '0012_identity'),
    ]

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Plan',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9-]{0,62}$', 'Lower-case letters, digits and dashes, at most 63.')])),
                ('name', models.CharField(max_length=120)),
                ('tasks_per_hour', models.PositiveIntegerField(default=100000, help_text='Submissions an hour, in the long run.')),
                ('burst', models.PositiveIntegerField(default=20000, help_text='Submissions at once; each task of a graph is one, so the largest must fit.')),
                ('max_waiting', models.PositiveIntegerField(default=1000000, help_text='Tasks accepted and not finished.')),
                ('max_in_flight', models.PositiveIntegerField(default=10000, help_text='Tasks claimed or running.')),
                ('rate_starts', models.PositiveIntegerField(blank=True, help_text="At most so many of a tenant's tasks start in any span of the seconds beside it; empty: any.", null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(100000)], verbose_name='execution rate: starts')),
                ('rate_per_s', models.PositiveIntegerField(db_default=60, default=60, help_text='Exact over all nodes. Each tenant of the plan has the rate for itself.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(2678400)], verbose_name='execution rate: seconds')),
                ('tiers', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), default=slackwater_tenants.models.all_tiers, help_text='Names of tiers allowed.', size=None)),
                ('max_artifact_bytes', models.PositiveIntegerField(db_default=16777216, default=16777216, help_text='Of one task, together.', verbose_name='artifacts (bytes)')),
                ('max_own_tiers', models.PositiveIntegerField(default=10, help_text='How many tiers of its own a client may have.', verbose_name='own tiers')),
                ('largest_tier', models.JSONField(default=slackwater_tenants.models.default_largest_tier, help_text='By resource; one not named may not be had.', verbose_name='largest own tier')),
                ('max_cap_s', models.PositiveIntegerField(default=86400, verbose_name='longest execution cap (s)')),
                ('max_payload_bytes', models.PositiveIntegerField(default=262144)),
                ('max_dag_tasks', models.PositiveIntegerField(default=20000)),
                ('max_dag_edges', models.PositiveIntegerField(default=100000)),
                ('max_dag_depth', models.PositiveIntegerField(default=1000)),
                ('max_urgent_permille', models.PositiveSmallIntegerField(default=1000, help_text="Thousandths of the tenant's unfinished tasks that may be urgent, beyond the first hundred.", validators=[django.core.validators.MaxValueValidator(1000)], verbose_name='urgent work (‰)')),
                ('weight', models.PositiveIntegerField(default=1, help_text='Share between tenants.', validators=[django.core.validators.MinValueValidator(1)])),
                ('guaranteed_permille', models.PositiveSmallIntegerField(default=0, validators=[django.core.validators.MaxValueValidator(1000)])),
                ('maximum_permille', models.PositiveSmallIntegerField(default=1000, validators=[django.core.validators.MaxValueValidator(1000)])),
                ('handlers', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), default=slackwater_tenants.models.all_handlers, help_text='Patterns of handler names granted: mail.*', size=None)),
                ('scripts', models.BooleanField(default=True, help_text='May run scripts.')),
                ('refuse_impossible', models.BooleanField(db_default=False, default=False, help_text='At once, when it is submitted; otherwise it waits for a node and is given up after a while.', verbose_name='refuse what no node can run')),
                ('refuse_late', models.BooleanField(db_default=False, default=False, help_text="When the tenant's own work ahead takes longer than the start may be delayed.", verbose_name='refuse what would start late')),
                ('script_network', models.BooleanField(default=False, help_text='Its scripts reach the network of the nodes they run on, with all that answers there.', verbose_name='network for scripts')),
                ('max_checkpoint_bytes', models.PositiveIntegerField(db_default=16777216, default=16777216, help_text='Largest checkpoint a task may save.')),
                ('dead_letter_retries', models.PositiveSmallIntegerField(default=0, help_text='How often a dead letter is retried by itself.')),
                ('dead_letter_after_s', models.PositiveIntegerField(default=3600, help_text='Time before such a retry.')),
                ('delay_tolerance_s', models.JSONField(default=slackwater_tenants.models.default_tolerances, help_text='By category, in seconds.')),
                ('price_micros_per_attempt', models.PositiveBigIntegerField(default=0, help_text='In millionths of the unit you charge in.', verbose_name='price of an attempt (millionths)')),
                ('price_permille', models.JSONField(default=slackwater_tenants.models.default_price_permille, help_text="What an hour of a tier costs in this category, in thousandths of the tier's price.", verbose_name='price by category (‰)')),
                ('retention_days', models.PositiveIntegerField(default=30, help_text='How long finished tasks are kept; 0: for ever.', verbose_name='retention (days)')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('max_log_bytes', models.PositiveIntegerField(db_default=1048576, default=1048576, help_text='Of what an attempt prints and logs.', verbose_name='output (bytes)')),
                ('max_stream_bytes', models.PositiveIntegerField(db_default=67108864, default=67108864, help_text='Of what an attempt yields.', verbose_name='result stream (bytes)')),
                ('handler_defaults', models.JSONField(blank=True, db_default={}, default=dict, help_text='By pattern of names: {"mail.*": {"category": "urgent", "delay_tolerance_s": 5}}. They go before what the handler declares; of several that match the last holds, and what a submission says goes before all.', verbose_name='defaults by handler')),
                ('max_upload_bytes', models.PositiveBigIntegerField(db_default=1073741824, default=1073741824, help_text='Of one tenant, together.', verbose_name='uploads (bytes)')),
                ('require_labels', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63, validators=[django.core.validators.RegexValidator('^[^\\s,=\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]+(=[^\\s,=\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]+)?$', 'NAME or NAME=VALUE, without spaces and commas.')]), blank=True, db_default=[], default=list, help_text='Its tasks run only on nodes with all of these labels: pool=shared. From the next submission on.', size=None)),
                ('prefer_labels', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63, validators=[django.core.validators.RegexValidator('^[^\\s,=\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]+(=[^\\s,=\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]+)?$', 'NAME or NAME=VALUE, without spaces and commas.')]), blank=True, db_default=[], default=list, help_text='Of the nodes with room, those that have most of them come first.', size=None)),
            ],
            options={
                'ordering': ['slug'],
                'constraints': [models.CheckConstraint(condition=models.Q(('weight__gte', 1)), name='slackwater_plan_weight_positive'), models.CheckConstraint(condition=models.Q(('guaranteed_permille__lte', models.F('maximum_permille'))), name='slackwater_plan_guaranteed_within_maximum')],
            },
        ),
        migrations.CreateModel(
            name='Pool',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('cell', models.CharField(default='default', max_length=63, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9-]{0,62}$', 'Lower-case letters, digits and dashes, at most 63.')])),
                ('slug', models.CharField(max_length=63, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9-]{0,62}$', 'Lower-case letters, digits and dashes, at most 63.')])),
                ('weight', models.PositiveIntegerField(default=1, help_text='Its part of what is shared out beside it.', validators=[django.core.validators.MinValueValidator(1)])),
                ('guaranteed', models.FloatField(default=0.0, help_text='Of what the pool above is guaranteed (of the cell, on top): the soft limit, or minimum share.', validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(100)], verbose_name='guaranteed (%)')),
                ('maximum', models.FloatField(default=100.0, help_text='Of what the pool above may have at most: the hard limit.', validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(100)], verbose_name='maximum (%)')),
                ('lends', models.FloatField(default=100.0, help_text='How much of its idle guarantee others may use; the rest is kept free for it.', validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(100)], verbose_name='lends (%)')),
                ('inside', models.CharField(choices=[('fair', 'fair: by weight'), ('fifo', "fifo: by rank, whoever's it is")], default='fair', max_length=8)),
                ('parent', models.ForeignKey(blank=True, help_text='Empty: on top.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='children', to='slackwater_tenants.pool')),
            ],
            options={
                'ordering': ['cell', 'slug'],
                'constraints': [models.UniqueConstraint(fields=('cell', 'parent', 'slug'), name='slackwater_pool_unique', nulls_distinct=False), models.CheckConstraint(condition=models.Q(('weight__gte', 1)), name='slackwater_pool_weight_positive'), models.CheckConstraint(condition=models.Q(('guaranteed__gte', 0), ('lends__gte', 0), ('lends__lte', 100), ('maximum__lte', 100), ('guaranteed__lte', models.F('maximum'))), name='slackwater_pool_shares_in_order')],
            },
        ),
        migrations.CreateModel(
            name='Tenant',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9-]{0,62}$', 'Lower-case letters, digits and dashes, at most 63.')])),
                ('name', models.CharField(max_length=200)),
                ('cell', models.CharField(default='default', help_text='Where its tasks run.', max_length=63, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9-]{0,62}$', 'Lower-case letters, digits and dashes, at most 63.')])),
                ('trusted', models.BooleanField(default=False, help_text='Its scripts may run without a sandbox.')),
                ('paused', models.BooleanField(default=False, help_text='Tasks are accepted, none is started.')),
                ('paused_by_itself', models.BooleanField(db_default=False, default=False, help_text='By its owner, who may end the pause.')),
                ('script_root', models.CharField(blank=True, help_text='Folder mounted on the workers in which its script paths lie.', max_length=500)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('plan', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='tenants', to='slackwater_tenants.plan')),
                ('pool', models.ForeignKey(blank=True, help_text='Where its lines stand, unless a line has a pool of its own; empty: beside the pools.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='tenants', to='slackwater_tenants.pool')),
                ('client', models.CharField(blank=True, db_default='', default='', help_text='Whose it is, where a client has several: tenants without a pool that name one client share as one tenant.', max_length=63, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9-]{0,62}$', 'Lower-case letters, digits and dashes, at most 63.')])),
            ],
            options={
                'ordering': ['slug'],
            },
        ),
        migrations.CreateModel(
            name='TenantCounter',
            fields=[
                ('tenant', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='counter', serialize=False, to='slackwater_tenants.tenant')),
                ('unfinished', models.BigIntegerField(default=0)),
                ('urgent_unfinished', models.BigIntegerField(default=0)),
                ('theoretical_arrival', models.DateTimeField(default=None, help_text="When the rate's bucket is full again (generic cell rate algorithm).", null=True)),
                ('submitted', models.BigIntegerField(db_default=0, default=0, help_text='All that were ever accepted, or run again.')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('unfinished__gte', 0)), name='slackwater_counter_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='Team',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.CharField(max_length=63, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9-]{0,62}$', 'Lower-case letters, digits and dashes, at most 63.')])),
                ('name', models.CharField(max_length=120)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='teams', to='slackwater_tenants.tenant')),
            ],
            options={
                'ordering': ['slug'],
                'constraints': [models.UniqueConstraint(fields=('tenant', 'slug'), name='slackwater_team_unique')],
            },
        ),
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('role', models.CharField(choices=[('owner', 'Owner'), ('operator', 'Operator'), ('viewer', 'Viewer')], default='viewer', max_length=16)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
                ('team', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='memberships', to='slackwater_tenants.team')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='slackwater_tenants.tenant')),
                ('public_id', models.UUIDField(db_default=django.contrib.postgres.functions.RandomUUID(), editable=False, help_text='What clients call it: it tells of no other.', unique=True)),
            ],
            options={
                'ordering': ['id'],
                'constraints': [models.UniqueConstraint(fields=('tenant', 'user'), name='slackwater_membership_unique')],
            },
        ),
        migrations.CreateModel(
            name='ApiKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=120)),
                ('prefix', models.CharField(help_text='Visible part of the key.', max_length=16, unique=True)),
                ('secret_hash', models.CharField(editable=False, max_length=64)),
                ('scopes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(choices=[('submit', 'Submit'), ('read', 'Read'), ('cancel', 'Cancel'), ('manage', 'Manage'), ('operate', 'Operate')], max_length=16), default=list, size=None)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('member', models.ForeignKey(blank=True, help_text="Whose it is: it can do no more than this member's role allows, and goes with the member.", null=True, on_delete=django.db.models.deletion.CASCADE, related_name='api_keys', to='slackwater_tenants.membership')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_keys', to='slackwater_tenants.tenant')),
                ('origins', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), blank=True, db_default=[], default=list, help_text='Origins whose pages may read what it is answered, for example https://app.example.org.', size=None)),
            ],
            options={
                'verbose_name': 'API key',
                'ordering': ['tenant', 'name'],
            },
        ),
        migrations.CreateModel(
            name='StreamTicket',
            fields=[
                ('digest', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('path', models.CharField(max_length=200)),
                ('expires_at', models.DateTimeField()),
                ('key', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tickets', to='slackwater_tenants.apikey')),
            ],
        ),
        migrations.CreateModel(
            name='Identity',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('issuer', models.CharField(max_length=500)),
                ('subject', models.CharField(max_length=255)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='identities', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name_plural': 'identities',
                'constraints': [models.UniqueConstraint(fields=('issuer', 'subject'), name='slackwater_identity_unique')],
            },
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
        migrations.RunPython(create_plans, migrations.RunPython.noop),
    ]
