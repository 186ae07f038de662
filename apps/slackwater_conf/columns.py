"""PostgreSQL's own columns and indexes, in a project that does not install ``django.contrib.postgres``.

Django 6.0 refuses its fields where that app is not installed, which they do not need: it brings lookups and types of
others. A project may install it, so it cannot be one of ours. In migrations they are Django's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.postgres import fields, indexes
from django.core.checks import CheckMessage

if TYPE_CHECKING:
    from django.contrib.postgres.fields import ArrayField
    from django.contrib.postgres.indexes import GinIndex

    __all__ = ["ArrayField", "GinIndex"]
else:

    class ArrayField(fields.ArrayField):
        """An array."""

        def _check_postgres_installed(self, *args: Any) -> list[CheckMessage]:
            return []

        def deconstruct(self) -> Any:
            """As Django's."""
            name, _, args, kwargs = super().deconstruct()
            return name, "django.contrib.postgres.fields.ArrayField", args, kwargs

    class GinIndex(indexes.GinIndex):
        """An index of what is inside a value."""

        def _check_postgres_installed(self, *args: Any) -> list[CheckMessage]:
            return []

        def deconstruct(self) -> Any:
            """As Django's."""
            _, args, kwargs = super().deconstruct()
            return "django.contrib.postgres.indexes.GinIndex", args, kwargs

        def __eq__(self, other: object) -> bool:
            return isinstance(other, indexes.GinIndex) and self.deconstruct() == other.deconstruct()

        __hash__ = None  # as Django's: it is changed after it was made
