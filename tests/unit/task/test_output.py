"""What tasks write is cut into lines, kept in order and below its bound, and no secret gets through."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import pytest

from scheduler_ext.core.errors import StreamTooLarge
from scheduler_ext.core.work import Started, Written
from scheduler_ext.task import output as module
from scheduler_ext.task import redaction, running
from scheduler_ext.task.capture import TaskLog, TaskStream
from scheduler_ext.task.context import TaskContext
from scheduler_ext.task.output import MAX_LINE, Output, Splitter


def started(task_id: str = "t", fence: int = 1) -> Started:
    return Started(task_id, fence, 7, "h", "", "", [], {}, 1_000, 1, "")


class Kept:
    """A ledger in a list, which may be away."""

    faults = (OSError,)

    def __init__(self, most: int = 1_000_000) -> None:
        self.rows: list[Written] = []
        self.chunks: list[str] = []
        self.most = most
        self.away = False

    def most_written(self, task: Started) -> int:
        return self.most

    def write(self, written: Sequence[Written]) -> None:
        if self.away:
            raise OSError("away")
        self.rows += written

    def emit(self, task: Started, chunks: Sequence[tuple[int, str]], total: int) -> None:
        if self.away:
            raise OSError("away")
        if total > self.most:
            raise StreamTooLarge
        self.chunks += [text for _, text in chunks]

    def close(self) -> None: ...

    def lines(self, task_id: str = "t") -> list[str]:
        return [line.text for row in self.rows if row.task.task_id == task_id for line in row.lines]


def kept_by(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> Output:
    """An output that stores when it is told to, and not by itself."""
    made = Output()
    monkeypatch.setattr(made, "_run", lambda: None)
    made.open(lambda: ledger)
    return made


def test_lines_are_whole_and_bars_show_their_last_state() -> None:
    splitter = Splitter(list)
    assert splitter.feed("one\ntw") == ["one"]
    assert splitter.feed("o\r\n10%\r20%\r100%\n\n") == ["two", "100%", ""]
    assert splitter.feed("x" * (MAX_LINE + 1)) == ["x" * MAX_LINE, "x"]
    assert [splitter.feed("rest"), splitter.rest(), splitter.rest()] == [[], ["rest"], []]


def test_no_secret_gets_through_in_pieces_across_a_cut_or_over_lines() -> None:
    secrets = redaction.longest_first(["hunter2-hunter2", "first line\nsecond line"])
    splitter = Splitter(lambda: secrets)
    text = "x" * (MAX_LINE - 5) + "hunter2-hunter2" + "y" * 50
    said = [line for at in range(0, len(text), 7) for line in splitter.feed(text[at : at + 7])] + splitter.rest()
    assert "".join(said) == "x" * (MAX_LINE - 5) + "***" + "y" * 50
    assert splitter.feed("a first line\nsecond line b\n") == ["a ***", "*** b"]


def test_what_is_printed_and_logged_stands_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, task = Kept(), started()
    beneath: list[str] = []
    made = kept_by(ledger, monkeypatch)
    monkeypatch.setattr("scheduler_ext.task.capture.output", made)
    stream = TaskStream("stdout", type("Beneath", (), {"write": staticmethod(beneath.append)}))
    logger = logging.Logger("shop")  # noqa: LOG001 - one that the process's own handlers do not hear
    logger.addHandler(TaskLog())
    print("outside", file=stream)
    token = running.task.set(TaskContext(task, None))  # type: ignore[arg-type]
    try:
        print("a", "of", 400, file=stream)
        try:
            int("wrong")
        except ValueError:
            logger.exception("could not %s", "count")
        print("open", end="", file=stream)
    finally:
        running.task.reset(token)
    made.end(task)
    made.flush()
    (row,) = ledger.rows
    assert [(line.stream, line.level) for line in row.lines] == [
        ("stdout", "info"),
        ("log", "error"),
        ("stdout", "info"),
    ]
    assert (row.lines[0].text, row.lines[2].text) == ("a of 400", "open")
    assert re.fullmatch(r"could not count\nTraceback[^$]*'wrong'", row.lines[1].text)
    assert "a of 400\n" in beneath, "the process's own log has it, as one line"
    assert not made.attempts


def test_what_is_printed_fast_is_one_event_of_the_log_with_its_task_and_before_what_is_logged_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = started()
    seen: list[tuple[str, str]] = []
    made = kept_by(Kept(), monkeypatch)
    monkeypatch.setattr("scheduler_ext.task.capture.output", made)
    monkeypatch.setattr(module, "EVERY_S", 3_600.0)

    def beneath(text: str) -> None:
        seen.append((running.task.get().task_id, text))

    streams = [TaskStream(name, type("Beneath", (), {"write": staticmethod(beneath)})) for name in ("stdout", "stderr")]
    logger = logging.Logger("shop")  # noqa: LOG001 - one that the process's own handlers do not hear
    logger.addHandler(TaskLog())
    token = running.task.set(TaskContext(task, None))  # type: ignore[arg-type]
    try:
        for number in range(4):
            print("line", number, file=streams[number == 3])
        assert seen == [("t", "line 0\n")], "the first goes at once"
        logger.warning("now")
        assert seen[1:] == [("t", "line 1\nline 2\n"), ("t", "line 3\n")]
        print("later", file=streams[0])
    finally:
        running.task.reset(token)
    made.flush()
    assert seen[3:] == [("t", "later\n")], "another thread says whose it is"
    assert [line.text for row in made._ledger().rows for line in row.lines] == [  # type: ignore[attr-defined]
        "line 0", "line 1", "line 2", "line 3", "now", "later"
    ]  # fmt: skip


def test_the_process_s_log_does_not_wait_for_a_ledger_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Kept()
    seen: list[str] = []
    made = kept_by(ledger, monkeypatch)
    beneath = type("Beneath", (), {"write": staticmethod(seen.append)})
    for number in range(3):
        made.pass_on(started(), beneath, [f"line {number}"])
    made.add(started(), "stdout", "info", "kept")
    ledger.away = True
    with pytest.raises(OSError, match="away"):
        made.flush()
    assert "".join(seen) == "line 0\nline 1\nline 2\n"


def test_a_secret_read_later_is_removed_from_then_on() -> None:
    redaction.reveal(4_711, "first-secret")
    assert redaction.hide(4_711, "first-secret second-secret") == "*** second-secret"
    redaction.reveal(4_711, "second-secret")
    assert redaction.hide(4_711, "first-secret second-secret") == "*** ***"


def test_an_attempt_is_cut_at_its_bound_and_another_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Kept(most=30)
    made = kept_by(ledger, monkeypatch)
    for number in range(10):
        made.add(started("t"), "log", "info", f"line {number}")
    made.add(started("u"), "log", "info", "short")
    made.flush()
    made.add(started("t"), "log", "info", "more")
    made.flush()
    assert ledger.lines("t") == [
        "line 0",
        "line 1",
        "line 2",
        "line 3",
        "cut here: the plan keeps 30 bytes of what an attempt writes",
    ]
    assert ledger.lines("u") == ["short"]


def test_nothing_is_lost_while_the_ledger_is_away_and_what_is_too_much_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger, task = Kept(), started()
    made = kept_by(ledger, monkeypatch)
    monkeypatch.setattr(module, "MAX_WAITING", 20)
    ledger.away = True
    made.add(task, "log", "info", "before")
    for _ in range(3):
        with pytest.raises(OSError, match="away"):
            made.flush()
    for number in range(10):
        made.add(task, "log", "info", f"line {number}")
    ledger.away = False
    made.flush()
    assert ledger.lines() == ["before", "line 0", "line 1", "line 2", "line 3",
                              "6 lines are missing here: they came faster than they could be stored"]  # fmt: skip


def test_chunks_are_stored_before_the_task_ends_and_what_is_refused_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, task = Kept(most=20), started()
    made = kept_by(ledger, monkeypatch)
    made.emit(task, {"token": 1})
    made.end(task)
    assert ledger.chunks == ['{"token":1}']
    made.emit(task, "x" * 30)
    with pytest.raises(StreamTooLarge):
        made.end(task)
