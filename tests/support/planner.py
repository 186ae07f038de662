"""What the planner believes of a table."""

from __future__ import annotations

from django.db import connection


def learn(*tables: str) -> None:
    """Read whole tables for their statistics.

    ANALYZE looks at as many pages as the columns' targets ask for (6,000 of the busiest tables). Tests that roll back
    leave more pages than that, empty, and the few rows of this test may lie on one that is not looked at. The test's
    transaction takes the change back.
    """
    assert connection.in_atomic_block
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # what waits for the end of the transaction forbids the change
        for table in tables:
            key = connection.introspection.get_primary_key_column(cursor, table)
            cursor.execute(f"ALTER TABLE {table} ALTER {key} SET STATISTICS 10000")
            cursor.execute(f"ANALYZE {table}")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
