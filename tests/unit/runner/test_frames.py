"""Frames: whatever way the bytes come, the messages are the same; what is no frame is refused."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_ext.sandbox import frames

MESSAGES = st.lists(
    st.tuples(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=20)), st.binary(max_size=50)),
    max_size=5,
)


@given(MESSAGES, st.lists(st.integers(1, 40), min_size=1))
def test_they_come_out_as_they_went_in_however_the_bytes_are_cut(messages: list[frames.Frame], cuts: list[int]) -> None:
    data = b"".join(frames.pack(*each) for each in messages)
    parser, found, at, turn = frames.Parser(), [], 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        found += parser.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert found == messages


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 8,
        (1 << 20).to_bytes(4, "big") + (1 << 29).to_bytes(4, "big"),
        b"\0\0\0\1\0\0\0\0[",
        b"\0\0\0\2\0\0\0\0[]",
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(frames.FrameError):
        frames.Parser().feed(data)


def test_a_content_larger_than_is_expected_is_refused_before_it_is_read() -> None:
    with pytest.raises(frames.FrameError, match="and 10 are taken"):
        frames.Parser(most=10).feed(frames.pack({}, b"x" * 11)[:8])


def test_one_at_a_time_from_a_stream_until_it_ends() -> None:
    async def read() -> list[frames.Frame | None]:
        reader = asyncio.StreamReader()
        reader.feed_data(frames.pack({"a": 1}, b"one") + frames.pack({"b": 2})[:-1])
        reader.feed_eof()
        return [await frames.read(reader), await frames.read(reader)]

    assert asyncio.run(read()) == [({"a": 1}, b"one"), None]


def test_parts_must_be_what_was_announced() -> None:
    assert frames.split(b"abcde", [2, 0, 3]) == [b"ab", b"", b"cde"]
    for sizes in ([2, 2], [6], [-1, 6]):
        with pytest.raises(frames.FrameError):
            frames.split(b"abcde", sizes)
