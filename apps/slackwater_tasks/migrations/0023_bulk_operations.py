"""Operations on many tasks: what matched, in parts that upkeep takes."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import slackwater_tasks.models.base
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('slackwater_tasks', '0022_share_weight'),
        ('slackwater_tenants', '0010_label_form'),
    ]

    operations = [
        migrations.CreateModel(
            name='BulkOperation',
            fields=[
                ('id', models.UUIDField(default=slackwater_tasks.models.base.new_id, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('cancel', 'cancel'), ('retry', 'run again')], max_length=8)),
                ('what', models.CharField(help_text='Which tasks, in words.', max_length=300, verbose_name='which')),
                ('reason', models.CharField(max_length=150)),
                ('actor', models.CharField(max_length=120)),
                ('status', models.CharField(choices=[('open', 'in progress'), ('done', 'done'), ('stopped', 'stopped')], db_default='open', default='open', max_length=8)),
                ('total', models.PositiveIntegerField(default=0, help_text='Tasks that matched when it began.')),
                ('done', models.PositiveIntegerField(default=0, help_text='Tasks it was done to.')),
                ('asked', models.PositiveIntegerField(default=0, help_text='Of these: running tasks, which were asked to end.')),
                ('passed', models.PositiveIntegerField(default=0, help_text='Tasks that were looked at and left: ended meanwhile, or refused.')),
                ('first', models.PositiveIntegerField(default=0, help_text='So many go first, and the rest only if all of them succeed.')),
                ('note', models.CharField(blank=True, help_text='What it waits for, why it stopped, or what was refused last.', max_length=300)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('moved_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='Operations take turns by it.')),
                ('ended_at', models.DateTimeField(null=True)),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(condition=models.Q(('status', 'open')), fields=['moved_at'], name='slackwater_bulk_open')],
            },
        ),
        migrations.CreateModel(
            name='BulkPart',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ids', django.contrib.postgres.fields.ArrayField(base_field=models.UUIDField(), size=None)),
                ('first', models.BooleanField(default=False)),
                ('done', models.BooleanField(db_default=False, default=False)),
                ('retry_at', models.DateTimeField(help_text="A limit of its tenant's plan was met: it goes on later.", null=True)),
                ('operation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='parts', to='slackwater_tasks.bulkoperation')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_tenants.tenant')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
    ]
