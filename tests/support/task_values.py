"""Values that each kind of a task's fields accepts and refuses, and the kind in the words of the documentation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from slackwater_tasks.field_kinds import (
    MAX_SECONDS,
    Array,
    Choice,
    Field,
    Flag,
    Kind,
    Map,
    Metadata,
    Moment,
    Object,
    Resources,
    Retry,
    Seconds,
    Sha256,
    Text,
    Texts,
    Whole,
)


class Values(NamedTuple):
    """What one kind accepts, as JSON; what it refuses, of the right type or nearly so; and its words."""

    accepted: Sequence[Any]
    refused: Sequence[Any]
    words: str


def _text(kind: Text) -> Values:
    beside = ["x" * (kind.longest + 1), "a\x00b", "a\x1b[2J", "a\nb", "a\u202eb", "\ud800", 1, None, []]
    empty = "" if kind.empty else ", not empty"
    if kind.address:
        words = f"address of at most {kind.longest:,} characters"
        return Values(("", "https://example.org/a?b=%20"), [*beside, "https://a b", "ä"], words)
    return Values(
        ("", "x", "Ünïcödé 🦀"), beside if kind.empty else [*beside, ""],
        f"text of at most {kind.longest:,} characters{empty}",
    )  # fmt: skip


def _whole(kind: Whole) -> Values:
    low, high = kind.low, kind.high
    beside = (low - 1, high + 1, low + 0.5, True, "1", None)
    return Values((low, (low + high) // 2, high, float(high)), beside, f"whole number from {low:,} to {high:,}")


def _seconds(kind: Seconds) -> Values:
    least = "0.001" if kind.positive else "0"
    return Values(
        (0.5, 60, 86_400), (-1, MAX_SECONDS + 1, float("nan"), True, "1"),
        f"number of seconds from {least} to {MAX_SECONDS:,}",
    )  # fmt: skip


def _choice(kind: Choice) -> Values:
    words = tuple(kind.words)
    return Values(words, (*map(str.upper, words), "", 1, None), "one of " + ", ".join(f"`{word}`" for word in words))


def _texts(kind: Texts) -> Values:
    if kind.labels:
        wrong = (["a b"], ["a,b"], ["=a"], ["a="], ["a=b=c"], [""], [1], "a", None, ["x"] * (kind.most + 1))
        return Values(([], ["ssd", "gpu=a100"]), wrong, f"array of at most {kind.most} labels: `NAME`, `NAME=VALUE`")
    return Values(
        ([], ["a", "b"]), (["x"] * (kind.most + 1), ["x" * (kind.longest + 1)], [""], [1], "a", None),
        f"array of at most {kind.most:,} texts of at most {kind.longest:,} characters",
    )  # fmt: skip


SHA256 = Values(("", "0" * 64), ("F" * 64, "0" * 63, "0" * 65, 1, None), "64 characters 0-9 and a-f")
FLAG = Values((False, True), (0, 1, "true", None), "true or false")
MOMENT = Values(
    ("2030-01-31T09:00:00Z", "2030-01-31T09:00:00.5+01:00"),
    ("2030-01-31T09:00:00", "2030-02-31T09:00:00Z", "9999-12-31T23:59:59Z", "soon", 1),
    "ISO 8601 date and time with a time zone",
)
ARRAY = Values(([], [1, "x", None, {"a": []}]), ({}, "[]", 1, None), "JSON array")
OBJECT = Values(({}, {"a": [1, 2.5, "x"]}), ([], "{}", 1, None), "JSON object")
RETRY = Values(
    ({"base_s": 1}, {}), ([], {"base": 1}, {"base_s": -1}, "x"),
    'object: `{"base_s": 1, "factor": 2, "max_s": 60, "jitter": 0.2}`',
)  # fmt: skip
METADATA = Values(
    ({}, {"order": "7", "by": ""}), ([], {"a": 1}, {"": "x"}, {"a": "x" * 501}, {str(n): "" for n in range(33)}, None),
    "JSON object of at most 32 texts of at most 500 characters",
)  # fmt: skip
MAP = Values(
    ({"over": "list", "item": None}, {"over": "list", "path": "files.0", "item": "url", "index": "n"}),
    ([], {}, {"over": ""}, {"over": 1}, {"path": "a"}, {"over": "a", "as": "x"}, "x"),
    'object: `{"over": "list", "path": "files", "item": "url", "index": "n"}`',
)  # fmt: skip
RESOURCES = Values(
    ({}, {"memory_mb": 64}), ([], {"gpus": 1}, {"memory_mb": -1}, {"memory_mb": 1.5}, {"cpu_milli": True}, "1", None),
    "JSON object of whole numbers by resource",
)  # fmt: skip
KINDS: dict[type[Kind], Callable[[Any], Values]] = {
    Text: _text, Whole: _whole, Seconds: _seconds, Choice: _choice, Texts: _texts, Sha256: lambda _: SHA256,
    Flag: lambda _: FLAG, Moment: lambda _: MOMENT, Array: lambda _: ARRAY, Object: lambda _: OBJECT,
    Retry: lambda _: RETRY, Map: lambda _: MAP, Metadata: lambda _: METADATA,
    Resources: lambda _: RESOURCES,
}  # fmt: skip


def values_of(field: Field) -> Values:
    """The values of a field's kind; of the tier those that exist."""
    found = KINDS[type(field.kind)](field.kind)
    return found._replace(accepted=("basic", "regular", "premium")) if field.name == "tier" else found
