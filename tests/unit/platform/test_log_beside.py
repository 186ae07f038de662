"""Lines are written by a thread of their own, in order; what nobody takes is dropped and counted."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slackwater import logs


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("shop", logging.INFO, __file__, 1, text, None, None)


def test_lines_come_in_order_and_the_end_writes_them_all() -> None:
    stream = io.StringIO()
    beside = logs.Beside([logging.StreamHandler(stream)])
    for number in range(1000):
        beside.emit(record(str(number)))
    beside.close()
    assert stream.getvalue().split() == [str(number) for number in range(1000)]


def test_who_logs_does_not_wait_for_a_pipe_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_WAITING", 300)
    readable, writable = os.pipe()
    with os.fdopen(writable, "w") as stream:
        beside = logs.Beside([logging.StreamHandler(stream)])
        for _ in range(1000):
            beside.emit(record("x" * 1000))  # a megabyte into 64 KiB: a plain handler would stand here for ever
        got = b""
        until = time.monotonic() + 10
        while b"dropped" not in got and time.monotonic() < until:
            got += os.read(readable, 65_536)
        beside.close()
    os.close(readable)
    kept = got.count(b"x" * 1000)
    assert 300 <= kept < 1000
    assert f"{1000 - kept} lines of the log were dropped".encode() in got


def test_a_line_that_cannot_be_made_fails_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    beside = logs.Beside([logging.StreamHandler(stream)])
    beside.emit(logging.LogRecord("shop", logging.INFO, __file__, 1, "%d", ("no number",), None))
    beside.emit(record("fine"))
    beside.close()
    assert stream.getvalue() == "fine\n"
    assert "Logging error" in capsys.readouterr().err


def test_a_process_that_is_forked_writes_its_lines_itself(tmp_path: Path) -> None:
    script = (
        "import logging, multiprocessing as m\nfrom slackwater import logs\n"
        "logging.basicConfig()\nlogs.write_beside('w', 1, '')\n"
        "def say(): logging.getLogger('shop').warning('from below')\n"
        "p = m.get_context('fork').Process(target=say); p.start(); p.join(); print(p.exitcode)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True, cwd=tmp_path
    )
    assert (done.stdout, done.stderr.count("from below")) == ("0\n", 1)


def test_a_slot_keeps_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES", 10_000)
    root = logging.getLogger()
    before, place = list(root.handlers), dict(logs._place)
    try:
        logs.write_beside("w1@host", 3, str(tmp_path))
        for number in range(300):
            root.handlers[-1].emit(record(f"line {number} " + "x" * 500))
        logs.end_beside()
    finally:
        root.handlers[:] = before
        logs._place.clear()
        logs._place.update(place)
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["w1@host-3.log", "w1@host-3.log.1", "w1@host-3.log.2", "w1@host-3.log.3"]
    assert "line 299" in (tmp_path / files[0]).read_text() + (tmp_path / files[1]).read_text()
    assert '"slot": 3' in (tmp_path / files[1]).read_text()
