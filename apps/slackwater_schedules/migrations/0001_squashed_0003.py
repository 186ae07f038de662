# What had been several migrations, in one: the same schema, column by column.

import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.manager
import slackwater_tasks.models.base
from django.db import migrations, models


class Migration(migrations.Migration):

    # What came before it was split over these: a database that has them all is up to date.
    replaces = [
        ('slackwater_schedules', '0001_initial'),
        ('slackwater_schedules', '0002_workflows'),
        ('slackwater_schedules', '0003_fire_failed'),
    ]

    initial = True

    dependencies = [
        ('slackwater_tenants', '0001_squashed_0012'),
    ]

    operations = [
        migrations.CreateModel(
            name='Schedule',
            fields=[
                ('id', models.UUIDField(default=slackwater_tasks.models.base.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('kind', models.CharField(choices=[('once', 'Once'), ('daily', 'Daily'), ('weekly', 'Weekly'), ('monthly', 'Monthly'), ('annually', 'Annually'), ('cron', 'Cron'), ('interval', 'Interval')], max_length=16)),
                ('rule', models.JSONField(blank=True, default=dict, help_text='Parameters of its kind: {"times": ["07:30"]}.')),
                ('time_zone', models.CharField(default='UTC', max_length=63)),
                ('start_at', models.DateTimeField(blank=True, help_text='No firing before.', null=True)),
                ('end_at', models.DateTimeField(blank=True, help_text='No firing after.', null=True)),
                ('jitter_s', models.PositiveIntegerField(default=0, help_text='Each firing is delayed by a fixed part of this, so that many do not come at once.', validators=[django.core.validators.MaxValueValidator(86400)], verbose_name='jitter (s)')),
                ('paused', models.BooleanField(default=False)),
                ('missed', models.CharField(choices=[('skip', 'skip them'), ('one', 'make the latest'), ('all', 'make the latest ones, up to the limit'), ('window', 'make those within the window')], default='one', max_length=16)),
                ('missed_after_s', models.PositiveIntegerField(default=60, help_text='A firing this late is a missed one; before, it is only late.', verbose_name='missed after (s)')),
                ('missed_limit', models.PositiveIntegerField(default=100, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000)])),
                ('missed_window_s', models.PositiveIntegerField(default=3600, verbose_name='missed window (s)')),
                ('overlap', models.CharField(choices=[('allow', 'run both'), ('skip', 'skip this firing'), ('queue_one', "let one wait for the other's end"), ('cancel_old', 'cancel the old one')], default='allow', max_length=16)),
                ('task', models.JSONField(help_text='What is submitted: the fields of a task; {} where it is a workflow.')),
                ('version', models.PositiveIntegerField(default=1, help_text='Rises with every change.')),
                ('anchor_at', models.DateTimeField(help_text='What an interval counts from when it has no start.')),
                ('next_fire_at', models.DateTimeField(blank=True, help_text='The time it fires for; empty when there is none.', null=True)),
                ('next_due_at', models.DateTimeField(blank=True, help_text='The same with its jitter; empty while paused.', null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('created_by', models.CharField(blank=True, max_length=120)),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('updated_by', models.CharField(blank=True, max_length=120)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='schedules', to='slackwater_tenants.tenant')),
                ('workflow', models.JSONField(blank=True, help_text='What is submitted: the fields of a workflow.', null=True)),
            ],
            options={
                'ordering': ['name'],
                'base_manager_name': '_plain',
                'indexes': [models.Index(condition=models.Q(('next_due_at__isnull', False)), fields=['next_due_at', 'tenant'], name='slackwater_schedule_due')],
                'constraints': [models.UniqueConstraint(fields=('tenant', 'name'), name='slackwater_schedule_name_unique'), models.CheckConstraint(condition=models.Q(('kind__in', ['once', 'daily', 'weekly', 'monthly', 'annually', 'cron', 'interval'])), name='slackwater_schedule_kind'), models.CheckConstraint(condition=models.Q(('next_due_at__isnull', True), ('next_due_at__gte', models.F('next_fire_at')), _connector='OR'), name='slackwater_schedule_due_after_fire')],
            },
            managers=[
                ('objects', django.db.models.manager.Manager()),
                ('_plain', django.db.models.manager.Manager()),
            ],
        ),
        migrations.CreateModel(
            name='ScheduleFire',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('fire_at', models.DateTimeField()),
                ('due_at', models.DateTimeField(help_text='The same with its jitter.')),
                ('fired_at', models.DateTimeField(help_text='When it was decided.')),
                ('lateness_ms', models.BigIntegerField(help_text='From due to fired.')),
                ('outcome', models.CharField(choices=[('submitted', 'Submitted'), ('missed', 'Missed'), ('skipped', 'skipped: the last one still runs'), ('failed', 'could not be submitted')], max_length=16)),
                ('task_id', models.UUIDField(null=True)),
                ('error', models.CharField(blank=True, default='', max_length=500)),
                ('backfill', models.BooleanField(default=False)),
                ('version', models.PositiveIntegerField(help_text='Of the schedule, when it fired.')),
                ('schedule', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='fires', to='slackwater_schedules.schedule')),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_tenants.tenant')),
                ('workflow_id', models.UUIDField(null=True)),
            ],
            options={
                'ordering': ['-fire_at'],
                'base_manager_name': '_plain',
                'indexes': [models.Index(condition=models.Q(('task_id__isnull', False)), fields=['schedule', '-fire_at'], name='slackwater_fire_tasks'), models.Index(fields=['fired_at'], name='slackwater_fire_age'), models.Index(condition=models.Q(('outcome', 'failed')), fields=['fired_at'], name='slackwater_fire_failed')],
                'constraints': [models.UniqueConstraint(fields=('schedule', 'fire_at'), name='slackwater_fire_once')],
            },
            managers=[
                ('objects', django.db.models.manager.Manager()),
                ('_plain', django.db.models.manager.Manager()),
            ],
        ),
    ]
