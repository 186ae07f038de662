# What had been several migrations, in one: the same schema, column by column.

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.functions.text
import django.db.models.manager
import slackwater_tasks.models.base
from django.db import migrations, models


class Migration(migrations.Migration):

    # What came before it was split over these: a database that has them all is up to date.
    replaces = [
        ('slackwater_monitoring', '0001_initial'),
        ('slackwater_monitoring', '0002_on_time'),
        ('slackwater_monitoring', '0003_told'),
        ('slackwater_monitoring', '0004_receipts'),
        ('slackwater_monitoring', '0005_scaling'),
        ('slackwater_monitoring', '0006_rollups'),
    ]

    initial = True

    dependencies = [
        ('slackwater_resources', '0001_squashed_0007'),
        ('slackwater_tenants', '0001_squashed_0012'),
    ]

    operations = [
        migrations.CreateModel(
            name='Pulse',
            fields=[
                ('pk', models.CompositePrimaryKey('kind', 'cell', blank=True, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=16)),
                ('cell', models.CharField(max_length=63)),
                ('beat_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='UsageMark',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('done', models.BigIntegerField(default=0, help_text='The last attempt that is in.')),
                ('seen', models.BigIntegerField(default=0, help_text='The next ones go as far as this.')),
                ('seen_by', models.TextField(default='0', help_text='Once this transaction is over, none of them can still appear.')),
                ('events_done', models.BigIntegerField(db_default=0, default=0, help_text='The same of entries of histories.')),
                ('events_seen', models.BigIntegerField(db_default=0, default=0)),
                ('sampled_at', models.DateTimeField(help_text='When queues and slots were last looked at for the charts.', null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Alert',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('rule', models.CharField(max_length=32)),
                ('cell', models.CharField(blank=True, max_length=63)),
                ('subject', models.CharField(blank=True, help_text='The node, the category, the part.', max_length=200)),
                ('detail', models.CharField(blank=True, max_length=300)),
                ('since', models.DateTimeField(help_text='It has been wrong without a break since then.')),
                ('last_seen_at', models.DateTimeField(help_text='It was wrong when it was looked at then.')),
                ('raised_at', models.DateTimeField(null=True)),
                ('quiet_since', models.DateTimeField(help_text='It has not been wrong since then.', null=True)),
                ('cleared_at', models.DateTimeField(null=True)),
                ('acknowledged_at', models.DateTimeField(null=True)),
                ('acknowledged_by', models.CharField(blank=True, max_length=120)),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('cleared_at', None)), fields=('rule', 'cell', 'subject'), name='slackwater_alert_open_once')],
            },
        ),
        migrations.CreateModel(
            name='Login',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('username', models.CharField(max_length=150)),
                ('address', models.CharField(blank=True, max_length=64)),
                ('outcome', models.CharField(choices=[('succeeded', 'Succeeded'), ('failed', 'failed: wrong name or password, or not allowed in'), ('refused', 'refused: too many failures before'), ('left', 'logged out')], max_length=9)),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['address', 'at'], name='slackwater_login_address'), models.Index(django.db.models.functions.text.Upper('username'), models.F('at'), name='slackwater_login_name')],
            },
        ),
        migrations.CreateModel(
            name='Sizing',
            fields=[
                ('pk', models.CompositePrimaryKey('tenant', 'kind', 'name', 'tier', blank=True, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('handler', 'handler'), ('script', 'script'), ('script_path', 'script_path')], max_length=11)),
                ('name', models.CharField(help_text="The handler, the script's SHA-256, or its path.", max_length=500)),
                ('runs', models.BigIntegerField(default=0, help_text='All that were measured.')),
                ('exceeded', models.BigIntegerField(default=0, help_text='Of those, ended because they used more than the tier.')),
                ('cpu_milli', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), help_text='CPU of each run, on the average.', size=None)),
                ('memory_mb', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(null=True), help_text='Peak of each run, where it is measured.', size=None)),
                ('disk_mb', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(null=True), help_text='Peak of each run, where it is measured.', size=None)),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_tenants.tenant')),
                ('tier', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_resources.tier')),
            ],
            options={
                'base_manager_name': '_plain',
            },
            managers=[
                ('objects', django.db.models.manager.Manager()),
                ('_plain', django.db.models.manager.Manager()),
            ],
        ),
        migrations.CreateModel(
            name='Subscription',
            fields=[
                ('id', models.UUIDField(default=slackwater_tasks.models.base.new_id, editable=False, primary_key=True, serialize=False)),
                ('channel', models.CharField(choices=[('webhook', 'Webhook'), ('email', 'Email'), ('task', "the task's own address")], default='webhook', max_length=8)),
                ('url', models.CharField(blank=True, help_text='Where webhooks are sent.', max_length=2000)),
                ('description', models.CharField(blank=True, max_length=200)),
                ('events', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=32), help_text='Names of events.', size=None)),
                ('tags', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), blank=True, default=list, help_text='Only tasks with one of these.', size=None)),
                ('handlers', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), blank=True, default=list, help_text='Only these: mail.*', size=None)),
                ('enabled', models.BooleanField(default=True)),
                ('disabled_reason', models.CharField(blank=True, max_length=200)),
                ('failing_since', models.DateTimeField(help_text='No delivery has succeeded since.', null=True)),
                ('sealed', models.BinaryField(default=b'', help_text='The secret that signs, encrypted.')),
                ('sealed_before', models.BinaryField(default=b'', help_text='The secret before, while it still signs too.')),
                ('before_until', models.DateTimeField(null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('created_by', models.CharField(blank=True, max_length=120)),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='subscriptions', to='slackwater_tenants.tenant')),
                ('include_result', models.BooleanField(db_default=False, default=False, help_text='What a task returned goes with its task.succeeded.')),
            ],
            options={
                'ordering': ['-id'],
                'base_manager_name': '_plain',
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('channel__in', ['email', 'task']), ('url', '')), models.Q(('channel', 'webhook'), models.Q(('url', ''), _negated=True)), _connector='OR'), name='slackwater_subscription_has_its_address')],
            },
            managers=[
                ('objects', django.db.models.manager.Manager()),
                ('_plain', django.db.models.manager.Manager()),
            ],
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.UUIDField(default=slackwater_tasks.models.base.new_id, editable=False, primary_key=True, serialize=False)),
                ('event', models.CharField(max_length=32)),
                ('task_id', models.UUIDField(null=True)),
                ('url', models.CharField(blank=True, db_default='', default='', help_text="The task's own address.", max_length=2000)),
                ('payload', models.TextField(help_text='JSON, as it is sent.')),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('delivered', 'Delivered'), ('failed', 'failed: given up')], default='pending', max_length=9)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('tries_left', models.PositiveSmallIntegerField(help_text='Attempts before it is given up.')),
                ('next_attempt_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('delivered_at', models.DateTimeField(null=True)),
                ('log', models.JSONField(default=list, help_text='What became of each attempt.')),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_tenants.tenant')),
                ('subscription', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='slackwater_monitoring.subscription')),
            ],
            options={
                'verbose_name_plural': 'deliveries',
                'ordering': ['-id'],
                'base_manager_name': '_plain',
                'indexes': [models.Index(condition=models.Q(('state', 'pending')), fields=['subscription', 'next_attempt_at'], name='slackwater_delivery_due'), models.Index(fields=['subscription', '-id'], name='slackwater_delivery_log')],
            },
            managers=[
                ('objects', django.db.models.manager.Manager()),
                ('_plain', django.db.models.manager.Manager()),
            ],
        ),
        migrations.CreateModel(
            name='TraceSending',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('sent', models.BigIntegerField(db_default=0, default=0, help_text='Tasks whose spans were sent.')),
                ('refused', models.BigIntegerField(db_default=0, default=0, help_text='Tasks the collector did not take.')),
                ('dropped', models.BigIntegerField(db_default=0, default=0, help_text='Tasks given up beyond the backlog.')),
                ('backlog', models.IntegerField(db_default=0, default=0, help_text='Ended tasks not sent yet, when last looked.')),
                ('failing_since', models.DateTimeField(null=True)),
                ('error', models.CharField(blank=True, db_default='', default='', max_length=300)),
            ],
            options={
                'verbose_name_plural': 'trace sending',
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='slackwater_trace_sending_once')],
            },
        ),
        migrations.CreateModel(
            name='Usage',
            fields=[
                ('pk', models.CompositePrimaryKey('tenant', 'day', 'tier', 'category', blank=True, editable=False, primary_key=True, serialize=False)),
                ('day', models.DateField()),
                ('tier', models.CharField(help_text="The tier's name: it may be gone by now.", max_length=63)),
                ('category', models.PositiveSmallIntegerField(choices=[(1, 'urgent'), (2, 'delayable'), (3, 'periodic'), (4, 'offpeak')])),
                ('attempts', models.BigIntegerField(default=0)),
                ('succeeded', models.BigIntegerField(default=0)),
                ('run_ms', models.BigIntegerField(default=0, help_text='Time that resources were held.')),
                ('cpu_ms', models.BigIntegerField(default=0, help_text='CPU time, where it is measured.')),
                ('price_micros', models.BigIntegerField(default=0, help_text='At the prices of the moment, in millionths.')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_tenants.tenant')),
            ],
            options={
                'base_manager_name': '_plain',
            },
            managers=[
                ('objects', django.db.models.manager.Manager()),
                ('_plain', django.db.models.manager.Manager()),
            ],
        ),
        migrations.CreateModel(
            name='AlertNotice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('event', models.CharField(choices=[('raised', 'raised'), ('cleared', 'cleared')], max_length=8)),
                ('channel', models.CharField(choices=[('email', 'e-mail'), ('webhook', 'webhook')], max_length=8)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('due_at', models.DateTimeField()),
                ('done_at', models.DateTimeField(null=True)),
                ('error', models.CharField(blank=True, max_length=300)),
                ('alert', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='slackwater_monitoring.alert')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('done_at', None)), fields=['channel', 'due_at'], name='slackwater_notice_due')],
                'constraints': [models.UniqueConstraint(fields=('alert', 'event', 'channel'), name='slackwater_alert_told_once')],
            },
        ),
        migrations.CreateModel(
            name='OnTime',
            fields=[
                ('pk', models.CompositePrimaryKey('tenant', 'day', 'tier', 'category', 'handler', blank=True, editable=False, primary_key=True, serialize=False)),
                ('day', models.DateField()),
                ('tier', models.CharField(help_text="The tier's name: it may be gone by now.", max_length=63)),
                ('category', models.PositiveSmallIntegerField(choices=[(1, 'urgent'), (2, 'delayable'), (3, 'periodic'), (4, 'offpeak')])),
                ('handler', models.CharField(help_text='Empty for scripts.', max_length=200)),
                ('started', models.BigIntegerField(default=0)),
                ('on_time', models.BigIntegerField(default=0)),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_tenants.tenant')),
            ],
            options={
                'base_manager_name': '_plain',
            },
            managers=[
                ('objects', django.db.models.manager.Manager()),
                ('_plain', django.db.models.manager.Manager()),
            ],
        ),
        migrations.CreateModel(
            name='Told',
            fields=[
                ('pk', models.CompositePrimaryKey('tenant', 'event', 'subject', blank=True, editable=False, primary_key=True, serialize=False)),
                ('event', models.CharField(max_length=32)),
                ('subject', models.CharField(max_length=100)),
                ('at', models.DateTimeField()),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_tenants.tenant')),
            ],
            options={
                'verbose_name_plural': 'told',
                'abstract': False,
                'base_manager_name': '_plain',
            },
            managers=[
                ('objects', django.db.models.manager.Manager()),
                ('_plain', django.db.models.manager.Manager()),
            ],
        ),
        migrations.CreateModel(
            name='ReceiptKey',
            fields=[
                ('id', models.CharField(help_text='Of the SHA-256 of the public key.', max_length=16, primary_key=True, serialize=False)),
                ('public', models.BinaryField()),
                ('sealed', models.BinaryField(help_text='The private key, encrypted.')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='Terms',
            fields=[
                ('pk', models.CompositePrimaryKey('tenant', 'version', blank=True, editable=False, primary_key=True, serialize=False)),
                ('version', models.IntegerField()),
                ('since', models.DateTimeField()),
                ('terms', models.JSONField()),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_tenants.tenant')),
            ],
            options={
                'abstract': False,
                'base_manager_name': '_plain',
            },
            managers=[
                ('objects', django.db.models.manager.Manager()),
                ('_plain', django.db.models.manager.Manager()),
            ],
        ),
        migrations.CreateModel(
            name='ReceiptPage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('first', models.BigIntegerField(help_text='The number of its first receipt.')),
                ('last', models.BigIntegerField()),
                ('since', models.DateTimeField(help_text='The earliest end in it.')),
                ('until', models.DateTimeField(help_text='The latest end in it.')),
                ('charged_micros', models.BigIntegerField()),
                ('before', models.BinaryField(help_text='The hash that its first receipt follows.')),
                ('head', models.BinaryField(help_text='The hash of its last receipt.')),
                ('key_id', models.CharField(max_length=16)),
                ('signature', models.BinaryField()),
                ('body', models.BinaryField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_tenants.tenant')),
            ],
            options={
                'ordering': ['tenant', 'first'],
                'abstract': False,
                'base_manager_name': '_plain',
                'indexes': [models.Index(fields=['tenant', 'until'], name='slackwater_receipts_until')],
                'constraints': [models.UniqueConstraint(fields=('tenant', 'first'), name='slackwater_receipts_once')],
            },
            managers=[
                ('objects', django.db.models.manager.Manager()),
                ('_plain', django.db.models.manager.Manager()),
            ],
        ),
        migrations.CreateModel(
            name='Scaling',
            fields=[
                ('pk', models.CompositePrimaryKey('cell', 'labels', blank=True, editable=False, primary_key=True, serialize=False)),
                ('cell', models.CharField(max_length=63)),
                ('labels', models.CharField(help_text='Comma-separated; empty: all workers.', max_length=1000)),
                ('fewer_since', models.DateTimeField(help_text='It has had more workers than it wants since then.', null=True)),
                ('called_at', models.DateTimeField(null=True)),
                ('action', models.CharField(db_default='', default='', max_length=5)),
                ('wanted', models.IntegerField(db_default=0, default=0)),
                ('have', models.IntegerField(db_default=0, default=0)),
                ('calls', models.BigIntegerField(db_default=0, default=0)),
                ('failures', models.BigIntegerField(db_default=0, default=0, help_text='Calls that failed.')),
                ('error', models.CharField(db_default='', default='', help_text='Of the last call.', max_length=300)),
            ],
        ),
        migrations.CreateModel(
            name='Rollup',
            fields=[
                ('pk', models.CompositePrimaryKey('grain', 'at', 'dimension', 'key', blank=True, editable=False, primary_key=True, serialize=False)),
                ('grain', models.IntegerField(help_text='Seconds the span is long; 0: since the key was first met.')),
                ('at', models.DateTimeField(help_text='When the span began.')),
                ('dimension', models.PositiveSmallIntegerField(help_text='What the key is: see ``rollups/layout.py``.')),
                ('key', models.CharField(help_text="A handler, a tenant's number, a node's name, a category, a kind.", max_length=200)),
                ('numbers', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), help_text='In the order of ``rollups/layout.py``.', size=None)),
            ],
        ),
    ]
