import django.db.models.deletion
from django.db import migrations, models


# Each row is changed in place.
STORAGE = """
ALTER TABLE slackwater_tenants_endcounter SET (
    fillfactor = 20, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0)
"""
VIEW = """
CREATE VIEW slackwater_tenants_currentcounter AS
SELECT c.tenant_id, c.unfinished + c.ended - e.tasks AS unfinished,
    c.urgent_unfinished + c.urgent_ended - e.urgent AS urgent_unfinished, c.submitted, c.theoretical_arrival
FROM slackwater_tenants_tenantcounter c CROSS JOIN LATERAL (
    SELECT coalesce(sum(tasks), 0)::bigint AS tasks, coalesce(sum(urgent), 0)::bigint AS urgent
    FROM slackwater_tenants_endcounter WHERE tenant_id = c.tenant_id) e
"""
# The version before knows the counters alone. It is at work meanwhile: what it changes must be seen, or wait.
NO_VIEW = """
LOCK TABLE slackwater_tenants_tenantcounter IN ACCESS EXCLUSIVE MODE;
UPDATE slackwater_tenants_tenantcounter c SET unfinished = v.unfinished, urgent_unfinished = v.urgent_unfinished
FROM slackwater_tenants_currentcounter v WHERE v.tenant_id = c.tenant_id;
DROP VIEW slackwater_tenants_currentcounter
"""


class Migration(migrations.Migration):

    dependencies = [
        ('slackwater_tenants', '0013_plan_without_own_tiers'),
    ]

    operations = [
        migrations.CreateModel(
            name='CurrentCounter',
            fields=[
                ('tenant', models.OneToOneField(on_delete=django.db.models.deletion.DO_NOTHING, primary_key=True, related_name='current_counter', serialize=False, to='slackwater_tenants.tenant')),
                ('unfinished', models.BigIntegerField()),
                ('urgent_unfinished', models.BigIntegerField()),
                ('submitted', models.BigIntegerField()),
                ('theoretical_arrival', models.DateTimeField(null=True)),
            ],
            options={
                'managed': False,
            },
        ),
        migrations.AddField(
            model_name='tenantcounter',
            name='ended',
            field=models.BigIntegerField(db_default=0, default=0, help_text='The ended tasks that were taken in.'),
        ),
        migrations.AddField(
            model_name='tenantcounter',
            name='urgent_ended',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AlterField(
            model_name='tenantcounter',
            name='unfinished',
            field=models.BigIntegerField(default=0, help_text='Less the ended tasks that were taken in.'),
        ),
        migrations.CreateModel(
            name='EndCounter',
            fields=[
                ('pk', models.CompositePrimaryKey('tenant', 'part', blank=True, editable=False, primary_key=True, serialize=False)),
                ('part', models.SmallIntegerField()),
                ('tasks', models.BigIntegerField()),
                ('urgent', models.BigIntegerField()),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slackwater_tenants.tenant')),
            ],
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
        migrations.RunSQL(VIEW, NO_VIEW),
    ]
