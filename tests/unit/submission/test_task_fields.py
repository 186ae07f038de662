"""Each declared field of a task accepts its samples, refuses what lies beside its limits, and names itself then."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_ext.core.errors import InvalidInput
from slackwater_tasks.field_kinds import Field, Sha256, Text
from slackwater_tasks.models import Task
from slackwater_tasks.spec import COLUMNS, EDITABLE, FIELDS, parse_fields
from tests.support.task_values import values_of


def empty_is_null(field: Field) -> bool:
    """Whether null stands for no text, as it does in answers."""
    return isinstance(field.kind, Sha256) or (isinstance(field.kind, Text) and field.kind.empty)


def values(which: str) -> list[Any]:
    found = []
    for name, field in FIELDS.items():
        given = [*getattr(values_of(field), which), *([None] if field.nullable and which == "accepted" else [])]
        found += [pytest.param(field, value, id=f"{name}-{n}") for n, value in enumerate(given)
                  if not (which == "refused" and value is None and (field.nullable or empty_is_null(field)))]  # fmt: skip
    return found


@pytest.mark.parametrize(("field", "value"), values("accepted"))
def test_a_sample_is_accepted(field: Field, value: Any) -> None:
    assert set(parse_fields({field.name: value})) == {field.attribute}


@pytest.mark.parametrize(("field", "value"), values("refused"))
def test_a_value_beside_the_limits_is_refused_with_the_name_of_its_field(field: Field, value: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_fields({field.name: value})
    assert str(refused.value.field).startswith(field.name)


def test_every_column_is_one_of_the_tasks() -> None:
    assert set(COLUMNS) <= {column.column for column in Task._meta.local_fields}


@pytest.mark.parametrize("field", COLUMNS.values(), ids=list(COLUMNS))
def test_what_is_stored_is_loaded_and_shown_as_it_was_given(field: Field) -> None:
    for sample in values_of(field).accepted:
        value = field.kind.check(sample, field.name)
        assert field.kind.loaded(field.kind.stored(value)) == value
        if field.name not in ("start_at", "expires_at"):
            assert field.kind.shown(field.kind.stored(value)) == (None if sample == "" else sample)


def test_what_decides_where_a_task_stands_cannot_be_changed_later() -> None:
    assert EDITABLE.isdisjoint({"handler", "script", "script_path", "depends_on", "condition", "idempotency_key"})
