from django.db import migrations

# Autovacuum looks at these tables every few seconds while tasks run, and to sort thirty thousand rows by each of some
# forty columns took more of the processor than to vacuum them. Hot statements need no statistics, and lists few.
SAMPLES = """
DO $$
DECLARE col record;
BEGIN
    FOR col IN SELECT attrelid::regclass AS of_table, attname FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped
        AND attrelid IN ('slackwater_tasks_task'::regclass, 'slackwater_tasks_livetask'::regclass,
            'slackwater_tasks_attempt'::regclass)
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS {target}', col.of_table, col.attname);
    END LOOP;
END $$
"""


class Migration(migrations.Migration):

    dependencies = [
        ('slackwater_tasks', '0024_opening'),
    ]

    operations = [
        migrations.RunSQL(SAMPLES.replace('{target}', '20'), SAMPLES.replace('{target}', '-1')),
    ]
