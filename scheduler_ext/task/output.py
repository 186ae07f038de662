"""What running tasks print, log and yield: gathered beside the work, and stored a few times a second.

A handler only appends to a list; a thread of the process takes what has come and writes it in one statement. Who writes
nothing pays nothing.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.core.work import Line, Started, Written
from scheduler_ext.ports import WorkStore
from scheduler_ext.task import redaction

log = logging.getLogger(__name__)

EVERY_S: Final = 0.2
"""Seconds between two looks at what has come."""
IDLE_S: Final = 30.0
"""The connection is closed after this many seconds without anything to store."""
MAX_WAITING: Final = 8_388_608
"""Characters of one attempt that may wait to be stored: beyond it lines are counted and dropped, chunks wait."""
MAX_ATTEMPTS: Final = 10_000
MAX_LINE: Final = 16_384
ROW_CHARS: Final = 65_536
"""The size of a row in the ledger, about: a follower reads whole rows."""
AT_ONCE: Final = 1_000
"""Printed lines of one attempt that wait for the process's log: beyond it the task passes them on itself."""
OWN: Final = "platform"
"""The stream of the lines that mark where something is missing."""
LEVELS: Final = {"stdout": "info", "stderr": "error"}
"""The level of lines that were written without one."""


class Splitter:
    """Cuts what is written to one stream into lines, without secrets, also where a secret spans two writes."""

    def __init__(self, secrets: Callable[[], Sequence[str]]) -> None:
        """``secrets()`` returns what must not be shown, the longest first."""
        self._secrets = secrets
        self._open = ""

    def feed(self, text: str) -> list[str]:
        """The lines that ``text`` completes."""
        *whole, self._open = (self._open + text).split("\n")
        if not whole and len(self._open) <= MAX_LINE:
            return []
        secrets = self._secrets()
        lines = [piece for line in whole for piece in _pieces(redaction.blotted(line, secrets))]
        kept = len(secrets[0]) if secrets else 0
        if len(self._open) > MAX_LINE + kept:
            # What may be the beginning of a secret stays until all of it is there.
            shown = redaction.blotted(self._open, secrets)
            at = max(0, len(shown) - kept)
            lines += _pieces(shown[:at])
            self._open = shown[at:]
        return lines

    def rest(self) -> list[str]:
        """The rest after the last line, at the end of the stream."""
        rest, self._open = self._open, ""
        return _pieces(redaction.blotted(rest, self._secrets())) if rest else []


def _pieces(line: str) -> list[str]:
    # A progress bar goes back to the beginning of its line again and again: its last state counts.
    line = line.rstrip("\r").rsplit("\r", 1)[-1]
    return [line[at : at + MAX_LINE] for at in range(0, len(line), MAX_LINE)] or [line]


@dataclass(slots=True)
class Attempt:
    """What one attempt has written."""

    task: Started
    lines: deque[Line] = field(default_factory=deque)
    chunks: deque[tuple[int, str]] = field(default_factory=deque)
    splitters: dict[str, Splitter] = field(default_factory=dict)
    waiting: int = 0
    """Characters of lines and chunks not yet stored."""
    lost: int = 0
    """Lines dropped because too many waited."""
    most: int = -1
    """Bytes of lines that its plan keeps; negative while unknown."""
    written: int = 0
    yielded: int = 0
    cut: bool = False
    ended: bool = False
    fault: SlackwaterError | None = None
    """Why its chunks are refused."""
    aside: deque[tuple[Any, str]] = field(default_factory=deque)
    """Printed lines that wait for the process's log, with the stream that leads there."""
    passed_at: float = 0.0
    passing: threading.Lock = field(default_factory=threading.Lock)
    context: Context = field(default_factory=copy_context)
    """The task's own, in which its first line was written: the log's lines say whose they are."""

    @property
    def key(self) -> tuple[str, int]:
        return self.task.task_id, self.task.fence


class Output:
    """The output of this process's tasks; nothing is kept before :meth:`open`, which is called after the fork."""

    def __init__(self) -> None:
        self.attempts: dict[tuple[str, int], Attempt] = {}
        """The attempts that have written something and have not ended."""
        self.waiting = False
        """Set while something waits to be stored."""
        self._make: Callable[[], WorkStore] | None = None
        self._store: WorkStore | None = None
        self._unstored: list[Written] = []
        self._numbers = count(1)
        """The order of rows and chunks: later ones have a higher number."""
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def open(self, make: Callable[[], WorkStore]) -> None:
        """Keep what tasks write from now on; ``make()`` opens the ledger."""
        self._make = make
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        # A process that a handler forks has no thread that would store anything.
        self._make, self.attempts, self.waiting = None, {}, False

    # -- what tasks do ------------------------------------------------------------------------------------------------
    def _of(self, task: Started) -> Attempt:
        found = self.attempts.get((task.task_id, task.fence))
        if found is None:
            if len(self.attempts) >= MAX_ATTEMPTS:  # of what writes on after its end
                self.attempts.pop(next(iter(self.attempts)), None)
            found = self.attempts.setdefault((task.task_id, task.fence), Attempt(task))
        return found

    def add(self, task: Started, stream: str, level: str, text: str) -> None:
        """Keep one line."""
        attempt = self._of(task)
        if attempt.cut or self._make is None:
            return
        if attempt.waiting > MAX_WAITING:
            attempt.lost += 1
            return
        attempt.lines.append(Line(time.time(), stream, level, text))
        attempt.waiting += len(text)
        self._tell()

    def write(self, task: Started, stream: str, text: str, secrets: Callable[[], Sequence[str]]) -> list[str]:
        """Keep what was written to a stream, up to its last full line; returns those lines."""
        attempt = self._of(task)
        splitter = attempt.splitters.get(stream) or attempt.splitters.setdefault(stream, Splitter(secrets))
        lines = splitter.feed(text)
        for line in lines:
            self.add(task, stream, LEVELS[stream], line)
        return lines

    def pass_on(self, task: Started, beneath: Any, lines: Sequence[str]) -> None:
        """Pass printed lines on to the process's log: at once those that come now and then, in one those that come fast."""
        attempt = self._of(task)
        attempt.aside.extend((beneath, line) for line in lines)
        if self._make is None or len(attempt.aside) > AT_ONCE or time.monotonic() - attempt.passed_at > EVERY_S:
            _pass(attempt)
        else:
            self._tell()

    def catch_up(self, task: Started) -> None:
        """Pass on what a task has printed before it logs something: the log keeps the order of the two."""
        attempt = self.attempts.get((task.task_id, task.fence))
        if attempt is not None:
            _pass(attempt)

    def close(self, task: Started, stream: str) -> list[str]:
        """Keep the open rest of a stream's last line; returns it."""
        attempt = self.attempts.get((task.task_id, task.fence))
        lines = attempt.splitters[stream].rest() if attempt is not None and stream in attempt.splitters else []
        for line in lines:
            self.add(task, stream, LEVELS[stream], line)
        return lines

    def emit(self, task: Started, value: Any) -> None:
        """Keep one chunk of the task's result stream; waits while too much is to be stored.

        Raises what became of the chunks before: ``StreamTooLarge``, or ``AttemptReplaced``.
        """
        text = json.dumps(value, allow_nan=False, separators=(",", ":")).replace("\\u0000", "\\ufffd")
        attempt = self._of(task)
        if attempt.waiting > MAX_WAITING:
            self._settle(attempt)
        if attempt.fault is not None:
            raise attempt.fault
        attempt.chunks.append((next(self._numbers), text))
        attempt.waiting += len(text)
        self._tell()

    def end(self, task: Started) -> None:
        """End an attempt's output: return when its chunks are stored, or raise why they cannot be."""
        attempt = self.attempts.get((task.task_id, task.fence))
        if attempt is None:
            return
        for stream in attempt.splitters:
            self.close(task, stream)
        _pass(attempt, wait=True)
        self._settle(attempt)
        attempt.ended = True
        if self._make is None:
            self.attempts.pop(attempt.key, None)
        self._tell()
        if attempt.fault is not None:
            raise attempt.fault

    def _settle(self, attempt: Attempt) -> None:
        """Wait until its chunks are stored, however long the ledger is away."""
        pause = 0.1
        while attempt.chunks and attempt.fault is None and self._make is not None:
            try:
                self.flush()
            except self._ledger().faults as error:
                log.warning("chunks of %s could not be stored, trying again: %s", attempt.task.task_id, error)
                time.sleep(pause)
                pause = min(2.0, pause * 2)

    def _tell(self) -> None:
        if self.waiting or self._make is None:
            return
        self.waiting = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="output", daemon=True)
            self._thread.start()
        self._wake.set()

    # -- storing ------------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            if not self._wake.wait(IDLE_S):
                with self._lock:
                    if self._store is not None:
                        self._store.close()
                continue
            self._wake.clear()
            time.sleep(EVERY_S)
            try:
                self.flush()
            except Exception as error:  # noqa: BLE001 - whatever it is, what came is tried again with what comes
                log.warning("what tasks wrote could not be stored, trying again: %s", error)
                self.waiting = True
                self._wake.set()

    def flush(self) -> None:
        """Store what has come so far, each attempt's lines in order; raises the ledger's faults."""
        if self._make is None:
            return
        with self._lock:
            self.waiting = False
            for attempt in list(self.attempts.values()):
                _pass(attempt, wait=True)
            store = self._ledger()
            self._write(store)  # while the ledger is away, what comes stays where it is counted
            for attempt in list(self.attempts.values()):
                self._take(store, attempt)
                if attempt.ended and not attempt.lines and not attempt.aside:
                    self.attempts.pop(attempt.key, None)
            self._write(store)

    def _write(self, store: WorkStore) -> None:
        if self._unstored:
            store.write(self._unstored)
            self._unstored = []

    def _ledger(self) -> WorkStore:
        if self._store is None:
            assert self._make is not None
            self._store = self._make()
        return self._store

    def _take(self, store: WorkStore, attempt: Attempt) -> None:
        """Store an attempt's chunks, and make rows of its lines."""
        if attempt.chunks and attempt.fault is None:
            chunks = list(attempt.chunks)
            size = sum(len(text) for _, text in chunks)
            try:
                store.emit(attempt.task, chunks, attempt.yielded + size)
            except SlackwaterError as error:
                attempt.fault = error
                attempt.chunks.clear()
            else:
                attempt.yielded += size
                for _ in chunks:
                    attempt.chunks.popleft()
        if attempt.lines or attempt.lost:
            if attempt.most < 0:
                attempt.most = store.most_written(attempt.task)
            self._unstored += self._rows(attempt)
        attempt.waiting = 0

    def _rows(self, attempt: Attempt) -> list[Written]:
        rows: list[Written] = []
        lines: list[Line] = []
        size = 0
        while attempt.lines and not attempt.cut:
            line = attempt.lines.popleft()
            attempt.written += len(line.text if line.text.isascii() else line.text.encode("utf-8", "replace")) + 1
            if attempt.written > attempt.most:
                attempt.cut = True
                line = _own(f"cut here: the plan keeps {attempt.most:,} bytes of what an attempt writes")
            lines.append(line)
            size += len(line.text)
            if size > ROW_CHARS:
                rows.append(Written(attempt.task, next(self._numbers), lines))
                lines, size = [], 0
        if attempt.lost and not attempt.cut:
            lines.append(_own(f"{attempt.lost:,} lines are missing here: they came faster than they could be stored"))
        attempt.lost = 0
        if attempt.cut:
            attempt.lines.clear()
        if lines:
            rows.append(Written(attempt.task, next(self._numbers), lines))
        return rows


def _pass(attempt: Attempt, *, wait: bool = False) -> None:
    """Write what waits for the process's log, many lines in one.

    Without ``wait`` whoever finds somebody at it leaves it to them: it may be this thread, in a log handler that prints.
    """
    if not attempt.aside or not attempt.passing.acquire(blocking=wait):
        return
    try:
        attempt.passed_at = time.monotonic()
        attempt.context.run(_pass_lines, attempt.aside)
    finally:
        attempt.passing.release()


def _pass_lines(aside: deque[tuple[Any, str]]) -> None:
    while aside:
        beneath, line = aside.popleft()
        lines, size = [line], len(line)
        while aside and aside[0][0] is beneath and size < MAX_LINE:
            lines.append(aside.popleft()[1])
            size += len(lines[-1])
        beneath.write("\n".join(lines) + "\n")


def _own(text: str) -> Line:
    return Line(time.time(), OWN, "warning", text)


output = Output()
"""This process's."""
