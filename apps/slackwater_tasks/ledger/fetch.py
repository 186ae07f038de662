"""Statements over Django's own connection, which sees what its transaction has written."""

from __future__ import annotations

from typing import Any

from django.db import connection


def fetch_all(query: str, params: Any = None) -> list[tuple[Any, ...]]:
    """All rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def fetch_value(query: str, params: Any = None) -> Any:
    """The first column of a statement's first row; ``None`` when it has no row."""
    found = fetch_all(query, params)
    return found[0][0] if found else None


def fetch_named(query: str, params: Any = None) -> dict[str, Any] | None:
    """A statement's first row by its columns' names; ``None`` when it has no row."""
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        values = cursor.fetchone()
        return values and dict(zip((column.name for column in cursor.description), values, strict=True))


def execute(query: str, params: Any = None) -> int:
    """Run a statement; returns how many rows it changed."""
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        return int(cursor.rowcount)
