"""What steers a terminal is found, and shown as what it is."""

from __future__ import annotations

import pytest

from scheduler_ext.core.plain_text import STEERS, counted, harmless

STEERING = [
    "\x00",
    "\x07",
    "\x1b",
    "\n",
    "\t",
    "\x7f",
    "\x85",
    "\x9b",
    "\u061c",
    "\u200f",
    "\u2028",
    "\u202e",
    "\u2066",
]


@pytest.mark.parametrize("char", STEERING)
def test_steering_characters_are_found_and_escaped(char: str) -> None:
    assert STEERS.search(f"a{char}b")
    shown = harmless(f"a{char}b")
    assert not STEERS.search(shown)
    assert shown.startswith("a\\")
    assert shown.endswith("b")


def test_lines_are_kept_where_they_are_meant() -> None:
    assert harmless("a\n\tb\x1b[2J\x9b", lines=True) == "a\n\tb\\x1b[2J\\x9b"


@pytest.mark.parametrize(
    "text", ["", "Ünïcödé 🦀", "👩‍💻 zero-width joiner", "עברית", "日本語", "a b", "\\x1b", "\u00a0"]
)
def test_other_text_is_left_alone(text: str) -> None:
    assert not STEERS.search(text)
    assert harmless(text) == text


def test_a_number_stands_with_its_noun() -> None:
    assert [counted(number, "task") for number in (0, 1, 2, 2000)] == ["0 tasks", "1 task", "2 tasks", "2,000 tasks"]
    assert [counted(number, "task is", plural="tasks are") for number in (1, 5)] == ["1 task is", "5 tasks are"]
