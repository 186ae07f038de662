"""Problems: every error has a status, and nothing internal is shown."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from django.db import OperationalError

from scheduler_ext.core import errors
from slackwater_api.http import pagination
from slackwater_api.http import problems as api
from slackwater_api.http.body import parse


def family(root: type[errors.SlackwaterError]) -> Iterator[type[errors.SlackwaterError]]:
    """A class and all below it."""
    yield root
    for child in root.__subclasses__():
        yield from family(child)


@pytest.mark.parametrize("kind", sorted(set(family(errors.SlackwaterError)), key=str))
def test_every_error_of_ours_has_a_status(kind: type[errors.SlackwaterError]) -> None:
    if kind.__module__.startswith(("scheduler_ext.core", "apps.")):
        assert kind.code in api.STATUS
        found = api.problem(kind(), "id")
        assert found.status == api.STATUS[kind.code][0]
        assert json.dumps(found.body)


def test_a_problem_names_code_field_and_request() -> None:
    found = api.problem(errors.InvalidInput("must be 1", field="tasks[3].tier", known=["a"]), "r-1")
    assert found.status == 422
    assert found.body == {
        "type": "/api/docs/errors#invalid_input", "title": "Invalid input", "status": 422, "detail": "must be 1",
        "code": "invalid_input", "request_id": "r-1", "field": "tasks[3].tier", "known": ["a"],
        "errors": [{"code": "invalid_input", "field": "tasks[3].tier", "detail": "must be 1"}],
    }  # fmt: skip


def test_extra_values_never_replace_what_a_problem_says() -> None:
    assert api.problem(errors.Conflict("no", status=200, code="ok", none=None), "r").body["status"] == 409


@pytest.mark.parametrize(
    ("retry_after", "header"), [(0.2, "1"), (59.1, "60"), (None, "5")]
)  # fmt: skip
def test_a_refused_rate_says_when_to_come_again(retry_after: float | None, header: str) -> None:
    found = api.problem(errors.LimitExceeded(retry_after=retry_after), "r")
    assert (found.status, found.body["title"], found.headers["Retry-After"]) == (
        429,
        "Limit exceeded",
        header,
    )
    assert found.body["retry_after_s"] == int(header), "the same as in the head"
    assert found.headers["RateLimit"] == f'"submissions";r=0;t={header}'


def test_what_is_internal_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        found = api.problem(RuntimeError("the password is 1234"), "r-9")
    assert (found.status, found.body["code"]) == (500, "internal")
    assert "1234" not in json.dumps(found.body)
    assert caplog.records[0].exc_info is not None


def test_a_lost_database_is_503_with_a_time_to_wait() -> None:
    found = api.problem(OperationalError("connection refused on 10.0.0.1"), "r")
    assert (found.status, found.body["code"], found.headers["Retry-After"]) == (503, "unavailable", "2")
    assert "10.0.0.1" not in json.dumps(found.body)


@pytest.mark.parametrize("parts", [("a",), ("2026-01-01T00:00:00+00:00", "x"), ("ü",)])
def test_cursors_read_back_what_they_hold(parts: tuple[str, ...]) -> None:
    assert pagination.decode(pagination.encode(*parts), *[str] * len(parts)) == list(parts)


@pytest.mark.parametrize("cursor", ["!", "AAAAA", "ü", pagination.encode("1", "2"), pagination.encode("x")])
def test_a_cursor_not_of_ours_is_refused(cursor: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        pagination.decode(cursor, int)
    assert caught.value.field == "cursor"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"a": [{"b": "\\u0000"}]}', "a[0].b"), (b'["x", "\\ud800"]', "[1]"), (b'{"a": {"\\u0000": 1}}', "a.\\x00"),
    ],
)  # fmt: skip
def test_text_that_cannot_be_stored_is_named_by_its_path(body: bytes, path: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        parse(body)
    assert caught.value.field == path


def test_good_bodies_pass_unchanged() -> None:
    assert parse('{"a": ["ü", 1.5, 10000000000000000000000, null]}'.encode()) == {"a": ["ü", 1.5, 10**22, None]}
