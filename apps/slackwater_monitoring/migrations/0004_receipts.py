"""Receipts, the terms they tell of, and the keys that seal them."""

import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('slackwater_monitoring', '0003_told'),
        ('slackwater_tasks', '0009_rounds'),
        ('slackwater_tenants', '0006_handler_defaults'),
    ]

    operations = [
        migrations.CreateModel(
            name='ReceiptKey',
            fields=[
                ('id', models.CharField(help_text='Of the SHA-256 of the public key.', max_length=16, primary_key=True, serialize=False)),
                ('public', models.BinaryField()),
                ('sealed', models.BinaryField(help_text='The private key, encrypted.')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.AddField(
            model_name='usagemark',
            name='events_done',
            field=models.BigIntegerField(db_default=0, default=0, help_text='The same of entries of histories.'),
        ),
        migrations.AddField(
            model_name='usagemark',
            name='events_seen',
            field=models.BigIntegerField(db_default=0, default=0),
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
        # What ended before has no receipt; the account goes on from here.
        migrations.RunSQL(
            "UPDATE slackwater_monitoring_usagemark SET events_done = m.id, events_seen = m.id "
            "FROM (SELECT coalesce(max(id), 0) AS id FROM slackwater_tasks_taskevent) m",
            migrations.RunSQL.noop,
        ),
    ]
