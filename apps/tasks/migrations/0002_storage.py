"""Storage settings of the hot tables: room for updates in place, and statistics that follow them closely."""

from django.db import migrations

LIVE = """
ALTER TABLE tasks_livetask SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE tasks_task SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE tenants_tenantcounter SET (fillfactor = 10, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE tasks_leader SET (fillfactor = 10);
"""
PLAIN = """
ALTER TABLE tasks_livetask RESET (
    fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_analyze_scale_factor,
    autovacuum_analyze_threshold, autovacuum_vacuum_cost_delay);
ALTER TABLE tasks_task RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor);
ALTER TABLE tenants_tenantcounter RESET (fillfactor, autovacuum_vacuum_threshold, autovacuum_vacuum_scale_factor);
ALTER TABLE tasks_leader RESET (fillfactor);
"""


class Migration(migrations.Migration):
    """Storage only."""

    dependencies = [("tasks", "0001_initial"), ("tenants", "0001_initial")]
    operations = [migrations.RunSQL(LIVE, PLAIN)]
