"""The journal: what a child notes, and what its agent may take away from it meanwhile."""

from __future__ import annotations

import mmap
import os
import uuid

import pytest

from scheduler_ext.conf import MAX_BATCH, SchedulerConf
from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.worker.journal import (
    BATCHES,
    BEGUN,
    ENDED,
    ENTRY_BYTES,
    PLACE_BLOB,
    PLACES,
    WAITING,
    Journal,
    Slot,
)

FLAGS = ("draining", "listened", "activated", "watched", "beside", "unheard")


@pytest.fixture
def journal() -> Journal:
    return Journal(2 * BATCHES)


def claims(count: int) -> list[tuple[str, int]]:
    return [(str(uuid.uuid4()), number) for number in range(count)]


def named(slot: Slot) -> list[tuple[str, int]]:
    return [(entry.task_id, entry.fence) for entry in slot.entries()]


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_of_the_header_changes_no_other(journal: Journal, flag: str) -> None:
    before = {name: getattr(journal, name) for name in FLAGS}
    setattr(journal, flag, not before[flag])
    assert {name: getattr(journal, name) for name in FLAGS} == {**before, flag: not before[flag]}
    setattr(journal, flag, before[flag])
    assert {name: getattr(journal, name) for name in FLAGS} == before


def test_a_child_has_its_slots_to_itself(journal: Journal) -> None:
    assert journal.children == 2
    mine, other = journal.slots_of(0), journal.slots_of(1)
    assert len({slot.index for slot in [*mine, *other]}) == journal.slots
    assert [s.index for s in journal.siblings(other[1])] == [other[0].index, other[2].index]


def test_a_batch_is_ahead_until_its_first_task_begins(journal: Journal) -> None:
    slot = journal.slot(1)
    assert not slot.ahead()
    slot.open(claims(2))
    assert slot.ahead()
    assert slot.begin(0, 1000, 1.0)
    assert not slot.ahead()
    slot.end(0, 2.0, b"")
    assert not slot.ahead(), "one has run, the other is next"
    slot.close()
    assert not slot.ahead()


def test_what_was_taken_away_stays_away_when_fewer_were_started_than_claimed(journal: Journal) -> None:
    slot = journal.slot(0)
    three = claims(3)
    slot.open(three)
    slot.limit = 0  # by the agent, while the start was under way
    slot.narrow(three[1:])
    assert named(slot) == three[1:]
    assert not slot.begin(0, 1000, 1.0)


def test_a_narrowed_batch_runs_to_its_end(journal: Journal) -> None:
    slot = journal.slot(0)
    three = claims(3)
    slot.open(three)
    slot.narrow(three[1:])
    for index in range(2):
        assert slot.begin(index, 1000, 1.0)
        running = slot.running()
        assert running is not None
        assert running.task_id == three[1 + index][0]
        assert slot.end(index, 2.0, b"")
    assert slot.count == 2


def test_a_table_tells_the_places_that_are_held(journal: Journal) -> None:
    table, other = journal.table(0), journal.table(BATCHES)
    assert table.entries() == []
    assert not table.holds()
    five = claims(5)
    places = [table.note(*claim) for claim in five]
    table.begin(places[3], 1000, 1.0)
    table.release(places[1])
    held = {entry.task_id: (place, entry.state) for place, entry in table.entries()}
    assert held == {five[n][0]: (places[n], BEGUN if n == 3 else WAITING) for n in (0, 2, 3, 4)}
    assert (table.holds(), other.holds(), other.entries()) == (True, False, [])
    last = [other.note(*claim) for claim in claims(PLACES)]
    assert [place for place, _ in other.entries()] == sorted(last), "every place, the last as well"


def test_the_texts_of_ends_are_kept_by_place(journal: Journal) -> None:
    table = journal.table(0)
    texts = {table.note(*claim): f"the end of {claim[1]}".encode() for claim in claims(PLACES)}
    for place, text in texts.items():
        table.begin(place, 1000, 1.0)
        table.end(place, 2.0, text)
    assert {place: entry.blob for place, entry in table.entries()} == texts
    assert {entry.state for _, entry in table.entries()} == {ENDED}
    table.end(3, 3.0, bytes(PLACE_BLOB + 1))
    assert table.entry(3).ended == 2.0, "what does not fit is left as it was"
    table.clear()
    assert table.entries() == []


def test_a_table_tells_whether_any_that_runs_is_over_its_cap(journal: Journal) -> None:
    table = journal.table(0)
    waiting, ended, runs = (table.note(*claim) for claim in claims(3))
    for place in (ended, runs):
        table.begin(place, 2_500, 10.0)
    table.end(ended, 11.0, b"")
    assert not table.is_any_over(12.5)
    assert table.is_any_over(12.6)
    table.end(runs, 12.6, b"")
    assert not table.is_any_over(12.6)
    assert table.entry(waiting).state == WAITING


def test_a_table_has_memory_where_something_is_noted(journal: Journal) -> None:
    def held() -> int:
        return os.fstat(journal.fd).st_blocks * 512

    table, before = journal.table(0), held()
    table.clear()
    for claim in claims(PLACES):
        place = table.note(*claim)
        table.begin(place, 1000, 1.0)
        table.end(place, 2.0, b"")
    assert held() - before < PLACES * ENTRY_BYTES + 3 * mmap.PAGESIZE


def test_the_largest_batch_that_settings_allow_fits() -> None:
    claims = [(str(uuid.uuid4()), n) for n in range(SchedulerConf(batch_max=MAX_BATCH).batch_max)]
    slot = Journal(1).slot(0)
    slot.open(claims)
    for index in range(len(claims)):
        assert slot.begin(index, 0, 1.0)
        assert slot.end(index, 2.0, b"a blob")
    assert [(entry.task_id, entry.fence) for entry in map(slot.entry, range(len(claims)))] == claims
    with pytest.raises(ConfigurationError, match="batch_max"):
        SchedulerConf(batch_max=MAX_BATCH + 1)
