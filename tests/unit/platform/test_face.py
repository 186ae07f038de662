"""The names that ``slackwater`` offers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import slackwater

SOURCE = Path(slackwater.__file__)
LOADED = "import sys, slackwater; print([name for name in ('django', 'celery', 'redis') if name in sys.modules])"


@pytest.mark.parametrize("name", slackwater.__all__)
def test_every_name_is_found_where_it_lives(name: str) -> None:
    assert getattr(slackwater, name) is not None
    assert name in dir(slackwater)


def test_type_checkers_see_what_is_found_at_run_time() -> None:
    """The import block for type checkers and the table of homes say the same."""
    block = next(node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If))
    said = {(one.module, name.name) for one in block.body if isinstance(one, ast.ImportFrom) for name in one.names}
    homes = slackwater._HOMES
    assert said == {(home, name) for home, names in homes.items() for name in names}
    assert {name for _, name in said} | {"DJANGO_APPS"} == set(slackwater.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        slackwater.nonsense  # noqa: B018


def test_the_import_alone_loads_neither_django_nor_celery() -> None:
    said = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
