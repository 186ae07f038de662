"""What a page shows of a column that nobody fills in there: units and words, where the column has thousandths and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.contrib import admin
from django.db import models
from django.utils.html import format_html_join
from django.utils.text import capfirst

from slackwater_adminkit.display import facts, table
from slackwater_adminkit.units import LABEL, ByNameField, field_of, told, units_of

DOCUMENTS: Final = frozenset({"handler.schema", "workflowtemplate.parameters", "workflowtemplate.workflow"})
"""Columns of JSON that somebody wrote as JSON, and reads as that."""


def readable(shown: Any, model: type[models.Model]) -> None:
    """Let a page's fields that are only read tell their columns in words."""
    words = {name: told_by for name in shown.readonly_fields if (told_by := in_words(model, name)) is not None}
    if not words:
        return

    meta = shown.form._meta
    fields = {name: field_of(column) for name in words if (column := _column(model, name)) is not None}
    told = {name: field.help_text for name, field in fields.items() if field is not None}
    meta.help_texts = {**(meta.help_texts or {}), **told}

    def swap(fields: Any) -> Any:
        return [words.get(name, name) if not isinstance(name, list | tuple) else swap(name) for name in fields]

    shown.fieldsets = [(name, {**options, "fields": swap(options["fields"])}) for name, options in shown.fieldsets]
    shown.readonly_fields = [*shown.readonly_fields, *words.values()]


def in_words(model: type[models.Model], name: Any) -> Callable[[Any], Any] | None:
    """What tells this column of a row; ``None`` where the column is plain."""
    column = _column(model, name)
    tell = None if column is None else _teller(column)
    if column is None or tell is None:
        return None
    field = field_of(column)
    label = str(field.label) if field is not None else capfirst(LABEL.sub("", str(column.verbose_name)))

    @admin.display(description=label)
    def shown(obj: Any) -> Any:
        return tell(getattr(obj, column.attname))

    shown.__name__ = column.name  # the class of its line, as of any other field
    return shown


def _column(model: type[models.Model], name: Any) -> models.Field[Any, Any] | None:
    return next((each for each in model._meta.concrete_fields if each.name == name), None)


def _teller(column: models.Field[Any, Any]) -> Callable[[Any], Any] | None:
    units = units_of(column.name)
    if isinstance(column, models.JSONField):
        written = f"{column.model._meta.model_name}.{column.name}" in DOCUMENTS
        return None if written else lambda value: in_lines(value, field_of(column))
    if units and isinstance(column, models.IntegerField):
        return lambda value: told(value, units) or "–"
    return None


def in_lines(value: Any, field: Any = None) -> Any:
    """JSON as lines: by the form's own field where there is one; objects of the same names as a table."""
    if value in (None, {}, []):
        return "–"
    if isinstance(field, ByNameField) and isinstance(value, Mapping):
        return format_html_join("", "<div>{}</div>", ((line,) for line in field.prepare_value(value).splitlines()))
    if isinstance(value, Mapping):
        return facts(dict(value))
    if isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
        names = list(dict.fromkeys(name for each in value for name in each))
        return table(names, [[each.get(name, "–") for name in names] for each in value], "–")
    return ", ".join(map(str, value)) if isinstance(value, list) else value
