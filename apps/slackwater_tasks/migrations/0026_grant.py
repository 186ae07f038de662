import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('slackwater_resources', '0001_squashed_0007'),
        ('slackwater_tasks', '0025_samples'),
    ]

    operations = [
        migrations.CreateModel(
            name='Grant',
            fields=[
                ('pk', models.CompositePrimaryKey('node', 'line', blank=True, editable=False, primary_key=True, serialize=False)),
                ('cell', models.CharField(max_length=63)),
                ('epoch', models.BigIntegerField(help_text='Of the leader who decided on it: it ends with that leadership.')),
                ('slot_milli', models.SmallIntegerField(help_text='Thousandths of a slot that each task takes.')),
                ('handler', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_resources.handler')),
                ('line', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_tasks.line')),
                ('node', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_resources.node')),
            ],
        ),
        # Not logged, as it may vanish: no commit waits for the disk because of it.
        migrations.RunSQL("ALTER TABLE slackwater_tasks_grant SET UNLOGGED", migrations.RunSQL.noop),
    ]
