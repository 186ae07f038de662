"""Submissions of many tasks, read one by one: all at once they would take ten times the body's size of memory."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, overload

from scheduler_ext.core.errors import InvalidInput, SlackwaterError, TooLarge
from slackwater_api.http.problems import MalformedBody

CHUNK: Final = 32_768
"""Bytes of objects that are made at once."""
NEXT: Final = rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+'
"""Up to the next bracket that stands in no string: a search that never goes back."""


def _nested(levels: int) -> bytes:
    return NEXT if not levels else NEXT + rb"(?:[\[{]" + _nested(levels - 1) + rb"[\]}]" + NEXT + rb")*+"


BRACKET: Final = re.compile(NEXT, re.DOTALL)
USUAL: Final = re.compile(rb"\{" + _nested(4) + rb"\}", re.DOTALL)
"""An object of a few levels."""
FIRST: Final = re.compile(rb"[ \t\r\n]*+(?=\{)")
BETWEEN: Final = re.compile(rb"[ \t\r\n]*+([,\]])")
OVER: Final = re.compile(rb"[ \t\r\n]*+(?:[\]}]|\Z)")
NAME: Final = re.compile(rb'[{,][ \t\r\n]*+"tasks"[ \t\r\n]*+:[ \t\r\n]*+\Z')
OPENING: Final = b"[{"


class Pieces(Sequence[Any]):
    """An array of objects, of which each is made when it is asked for, and forgotten then."""

    def __init__(self, body: bytes, starts: array[int], read: Callable[[bytes], Any]) -> None:
        """``starts``: where in the body each begins, and at last where the array ends."""
        self._body, self._starts, self._read = body, starts, read

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """One, or some."""
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        n = range(len(self))[index]
        return self._read(self.text(n, n + 1))

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._read(b"[%b]" % self.text(*some)) for some in self._chunks())

    def _chunks(self) -> Iterator[tuple[int, int]]:
        """From which to which they are made together."""
        n = 0
        while n < len(self):
            end = max(n + 1, bisect_right(self._starts, self._starts[n] + CHUNK) - 1)
            yield n, end
            n = end

    def text(self, begin: int, end: int) -> bytes:
        """The JSON of some, with commas between them. What follows is a comma, or nothing."""
        return self._body[self._starts[begin] : self._starts[end]].rstrip(b" \t\r\n,")

    def check(self, parse: Callable[[bytes], Any], where: str) -> None:
        """Have each be read once, so that a fault in any is told before the first is used."""
        for begin, end in self._chunks():
            try:
                parse(b"[%b]" % self.text(begin, end))
            except SlackwaterError:
                for n in range(begin, end):
                    self._tell(parse, n, f"{where}[{n}]")
                raise

    def _tell(self, parse: Callable[[bytes], Any], n: int, path: str) -> None:
        """Raise what is wrong with one, with its place."""
        try:
            parse(self.text(n, n + 1))
        except TooLarge:
            raise
        except InvalidInput as error:
            inner = error.field or ""
            dot = "." if inner and not inner.startswith("[") else ""
            raise InvalidInput(str(error), field=f"{path}{dot}{inner}") from None
        except MalformedBody as error:
            raise MalformedBody(f"{path}: {error}") from None


def split(body: bytes, read: Callable[[bytes], Any]) -> tuple[Pieces, bytes] | None:
    """The tasks of a submission, and the body without them; ``None`` for what is no array of objects.

    They are the body, or its member ``tasks``, in whose place ``null`` is left. Whether each is good JSON is not said.
    """
    begin = len(body) - len(body.lstrip(b" \t\r\n"))
    if body[begin : begin + 1] == b"[":
        found = _objects(body, begin)
        return (Pieces(body, found, read), b"null" + body[found[-1] + 1 :]) if found else None
    at = _tasks(body, begin)
    found = _objects(body, at) if at else None
    return (Pieces(body, found, read), b"".join((body[:at], b"null", body[found[-1] + 1 :]))) if found else None


def is_deep(body: bytes, levels: int) -> bool:
    """Whether the first of its brackets already stand deeper."""
    depth = place = 0
    for _ in range(100 * levels):
        place = _next(body, place)
        if place == len(body) or depth > levels:
            break
        depth += 1 if body[place] in OPENING else -1
        place += 1
    return depth > levels


def _tasks(body: bytes, begin: int) -> int:
    """Where the array in the member ``tasks`` of an object begins; 0 where there is none."""
    depth, place = 0, begin
    while (place := _next(body, place)) < len(body):
        if depth == 1 and body[place] == OPENING[0] and NAME.search(body, max(0, place - 200), place):
            return place
        depth += 1 if body[place] in OPENING else -1
        place += 1
    return 0


def _objects(body: bytes, begin: int) -> array[int] | None:
    """Where the objects of an array begin, and where it ends; ``None`` if it has others, or none."""
    starts, place = array("I"), begin
    while first := FIRST.match(body, place + 1):
        starts.append(first.end())
        usual = USUAL.match(body, first.end())
        after = BETWEEN.match(body, usual.end() if usual else _end(body, first.end()))
        if after is None:
            raise MalformedBody(
                f"The body is not valid JSON: the task at byte {first.end()} does not end, or no comma follows."
            )
        place = after.start(1)
        if after[1] == b"]":
            starts.append(place)
            return starts
    if starts and OVER.match(body, place + 1):
        raise MalformedBody(f"The body is not valid JSON: no value follows the comma at byte {place}.")
    return None


def _end(body: bytes, place: int) -> int:
    """Where something ends that begins with a bracket: the end of the body, if it does not."""
    depth = 0
    while (place := _next(body, place)) < len(body):
        depth += 1 if body[place] in OPENING else -1
        place += 1
        if not depth:
            break
    return place


def _next(body: bytes, place: int) -> int:
    found = BRACKET.match(body, place)
    end = found.end() if found else len(body)
    return end if body[end : end + 1] != b'"' else len(body)
