import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('slackwater_resources', '0001_squashed_0007'),
        ('slackwater_tasks', '0001_squashed_0023'),
    ]

    operations = [
        migrations.CreateModel(
            name='Opening',
            fields=[
                ('pk', models.CompositePrimaryKey('line', 'handler', 'alone', blank=True, editable=False, primary_key=True, serialize=False)),
                ('alone', models.BooleanField(help_text='For tasks that never share a batch.')),
                ('cell', models.CharField(max_length=63)),
                ('epoch', models.BigIntegerField(help_text='Of the leader who decided on it: it ends with that leadership.')),
                ('kind', models.CharField(max_length=10)),
                ('queue', models.CharField(max_length=10)),
                ('slot_milli', models.SmallIntegerField(help_text='Thousandths of a slot that each task takes.')),
                ('expected_us', models.IntegerField(help_text='The expected run time; 0: a child takes each by itself.')),
                ('places', models.IntegerField(help_text='So many tasks may still come; below zero: more came, and it is closed.')),
                ('given', models.IntegerField(help_text='The places there were when it was last widened.')),
                ('handler', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_resources.handler')),
                ('line', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_tasks.line')),
                ('node', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_resources.node')),
            ],
        ),
        # Not logged, as it may vanish: no commit waits for the disk because of it. Each row is changed in place.
        migrations.RunSQL(
            "ALTER TABLE slackwater_tasks_opening SET UNLOGGED; ALTER TABLE slackwater_tasks_opening SET (fillfactor = 20)",
            migrations.RunSQL.noop,
        ),
    ]
