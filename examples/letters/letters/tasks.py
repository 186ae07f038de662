"""The tasks. Each writes a line into the book as it runs, so that runs can be counted."""

import os
from typing import Any

from celery import chord, group

from letters.celery import app


class Jam(OSError):
    """The printer is stuck."""


def note(line: str) -> None:
    """Write a line, whole, whoever else writes."""
    book = os.open(os.environ["LETTERS_BOOK"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(book, f"{line}\n".encode())
    os.close(book)


@app.task(name="letters.fold", bind=True, max_retries=3)
def fold(self: Any, page: int) -> int:
    """Fold a page; the first try goes wrong, and the task says so itself."""
    note(f"fold {page}")
    if self.request.retries == 0:
        raise self.retry(countdown=0.1)
    return page


@app.task(name="letters.print", autoretry_for=(Jam,), retry_kwargs={"countdown": 0.1}, max_retries=3, bind=True)
def printed(self: Any, page: int) -> int:
    """Print a page; the printer is stuck twice."""
    note(f"print {page}")
    if self.request.retries < 2:
        raise Jam("stuck")
    return page


@app.task(name="letters.stamp")
def stamp(letter: str) -> None:
    """Stamp a letter: called by another task."""
    note(f"stamp {letter}")


@app.task(name="letters.close")
def close(pages: list[int], letter: str) -> list[int]:
    """Close an envelope around all its pages, and have it stamped."""
    note(f"close {letter}")
    stamp.delay(letter)
    tell.delay(letter)
    return sorted(pages)


@app.task(name="letters.lose")
def lose(letter: str) -> None:
    """Fail: once is enough."""
    note(f"lose {letter}")
    raise LookupError(letter)


@app.task(name="news.tell")
def tell(letter: str) -> None:
    """What may be lost."""
    note(f"tell {letter}")


@app.task(name="letters.sweep")
def sweep() -> None:
    """What beat starts."""
    note("sweep")


def write(letter: str) -> Any:
    """A letter of two pages."""
    return chord(group(printed.s(1), fold.s(2)), close.s(letter)).delay()
