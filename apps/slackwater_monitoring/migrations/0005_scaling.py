"""The last calls to whoever starts and stops workers."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('slackwater_monitoring', '0004_receipts'),
    ]

    operations = [
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
    ]
