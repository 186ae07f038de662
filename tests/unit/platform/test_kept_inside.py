"""What the platform writes: lines that steer no terminal, and files that are their owner's alone."""

from __future__ import annotations

import logging
import os
import stat
from io import StringIO
from pathlib import Path

import pytest

from slackwater.local.servers.folders import keep_private
from slackwater.logs import LineFormatter
from slackwater.management.console import Harmless, text

EVIL = "\x1b]0;PWNED\x07\x1b[2J\u202e\x9b"


def record(message: str, *args: object, error: BaseException | None = None) -> logging.LogRecord:
    """What a library logs."""
    info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("tenant", logging.ERROR, __file__, 1, message, args, info)


@pytest.mark.parametrize("form", ["console", "json"])
def test_no_log_line_steers_a_terminal(form: str) -> None:
    said = LineFormatter(form).format(record("failed: %s", EVIL, error=ValueError(EVIL)))
    assert "PWNED" in said
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(said)


def test_what_is_said_makes_no_line_of_its_own() -> None:
    said = LineFormatter("console").format(record("failed: %s", "x\n2026-01-01 FAKE [error] all is lost"))
    assert "\n    2026-01-01 FAKE" in said
    assert "\n2026" not in said


def test_what_commands_print_is_shown_as_what_it_is() -> None:
    out = StringIO()
    Harmless(out).write(f"{EVIL}\nsecond line\t!")
    assert out.getvalue() == "\\x1b]0;PWNED\\x07\\x1b[2J\\u202e\\x9b\nsecond line\t!"
    assert text(f"[red]{EVIL}") == "\\[red]\\x1b]0;PWNED\\x07\\x1b\\[2J\\u202e\\x9b"


def test_a_folder_that_was_open_is_closed(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        var = tmp_path / "var"
        (var / "redis" / "appendonlydir").mkdir(parents=True)
        (var / "log").mkdir()
        for name in ("redis/appendonlydir/a.aof", "log/api.log", "up.log"):
            (var / name).write_text("x")
        (var / "log" / "elsewhere").symlink_to("/etc/passwd")
        was = Path("/etc/passwd").stat().st_mode
        keep_private(var)
        (var / "later").write_text("x")
        modes = {str(path): stat.S_IMODE(path.lstat().st_mode) for path in var.rglob("*") if not path.is_symlink()}
        assert [path for path, mode in modes.items() if mode & 0o077] == []
        assert stat.S_IMODE(var.stat().st_mode) & 0o066 == 0
        assert Path("/etc/passwd").stat().st_mode == was
    finally:
        os.umask(before)
