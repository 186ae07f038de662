"""The journal: shared memory in which each pool child notes what it began and how it ended.

When a child dies, or must be stopped, the agent reads from it exactly which task of a batch had finished, which one
ran, and which had not begun. A few slots a child, a header for the node. The child writes, the agent reads; the agent
writes only to a child that it has stopped (SIGSTOP), so no lock is needed: a stopped child has either written an
entry's state or not.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scheduler_ext.conf import MAX_BATCH
from scheduler_ext.core.types import PER_CHILD, WorkKind
from scheduler_ext.dispatch.refusals import Kind
from scheduler_ext.sandbox.base import is_forsaken
from scheduler_ext.sandbox.keeper import process_tree

log = logging.getLogger(__name__)

LEASE_OVER = 75
"""Exit code of a child that has outlived its node's lease."""
BATCHES = 3
"""The most batches a child has at once: one runs, one is recorded, one is started ahead. Each has a slot."""
ENTRIES = MAX_BATCH
BLOB_BYTES = 1_048_576
# The header: node id (q), lease deadline (d), draining, listened, activated, watched, beside, unheard, wanted (a byte
# each, padded to 8), the agent's beat (d), what was refused of each kind (I).
# A slot: pid, open, count, current, limit, (pad), batch number (q), task to interrupt, outcome of the interruption,
# MiB held.
_ENTRY = struct.Struct("<16siiddBBxxxxxxii")  # id, fence, cap ms, began, ended, state, cancelled, blob offset, length
_RUN = struct.Struct("<20xid8xB15x")  # of the same: cap ms, began, state
# Made once: the name of a format is looked up on each call of the functions that take one.
_DOUBLE, _BEGUN_AT, _BLOB_AT = (struct.Struct(f) for f in ("<d", "<id", "<ii"))
REFUSED_AT = 32
_KINDS = tuple(Kind)
HEADER_BYTES = 64
SLOT_BYTES = 64
ENTRY_BYTES = _ENTRY.size
PLACES = 2 * PER_CHILD[WorkKind.COROUTINE]
"""As many run beside one another, and as many more have ended and are being recorded."""
PLACE_BLOB = 2048
SLOT_SIZE = SLOT_BYTES + ENTRIES * ENTRY_BYTES + BLOB_BYTES
SIZE = SLOT_SIZE + PLACES * (ENTRY_BYTES + PLACE_BLOB)

FREE, WAITING, BEGUN, ENDED = 0, 1, 2, 3
"""A table is free as it comes from the kernel, which gives it memory where something is noted."""
_ALL_FREE = bytes([FREE]) * PLACES
_PID, _OPEN, _COUNT, _CURRENT, _LIMIT, _BATCH, _INTERRUPT, _OUTCOME, _BASE_MB = 0, 4, 8, 12, 16, 24, 32, 36, 40
_CURRENT_AT, _LIMIT_AT = _CURRENT // 4, _LIMIT // 4
"""The same among numbers of four bytes."""


def to_unix_s() -> float:
    """What to add to a monotonic time to have Unix seconds, by the wall clock as it stands now."""
    return time.time() - time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One task of a batch, as the journal has it."""

    task_id: str
    fence: int
    cap_ms: int
    began: float
    ended: float
    state: int
    """WAITING, BEGUN or ENDED."""
    blob: bytes
    """What the child wrote about its end."""


def _entry(memory: mmap.mmap, at: int, blobs: int) -> Entry:
    """The task noted at ``at``; the texts of ends begin at ``blobs``."""
    raw, fence, cap_ms, began, ended, state, _, offset, length = _ENTRY.unpack_from(memory, at)
    blob = bytes(memory[blobs + offset : blobs + offset + length]) if state == ENDED else b""
    return Entry(
        task_id=str(uuid.UUID(bytes=raw)), fence=fence, cap_ms=cap_ms, began=began, ended=ended, state=state, blob=blob
    )


def _flag(at: int) -> Any:
    """A byte of the header as a property that is true or false."""

    def read(journal: Journal) -> bool:
        return bool(journal._memory[at])

    def write(journal: Journal, value: bool) -> None:
        journal._memory[at] = value

    return property(read, write)


def _number(form: str, at: int) -> Any:
    """A number of the header, or of a slot's, as a property."""
    packed = struct.Struct(form)

    def read(owner: Journal | Slot) -> Any:
        return packed.unpack_from(owner._memory, owner._base + at)[0]

    def write(owner: Journal | Slot, value: float) -> None:
        packed.pack_into(owner._memory, owner._base + at, value)

    return property(read, write)


class Journal:
    """The memory of one worker, shared by fork with its children and by descriptor with its agent."""

    _base = 0

    def __init__(self, slots: int, fd: int | None = None) -> None:
        """Create it for ``slots`` children, or open the one behind ``fd``."""
        self.slots = slots
        size = HEADER_BYTES + slots * SIZE
        if fd is None:
            fd = os.memfd_create("slackwater-journal", 0)
            os.ftruncate(fd, size)
        self.fd = fd
        self._memory = mmap.mmap(fd, size)

    @property
    def children(self) -> int:
        return self.slots // BATCHES

    def slots_of(self, child: int) -> list[Slot]:
        """The slots of one child; its table is that of the first."""
        return [self.slot(child * BATCHES + number) for number in range(BATCHES)]

    def siblings(self, slot: Slot) -> list[Slot]:
        return [other for other in self.slots_of(slot.index // BATCHES) if other.index != slot.index]

    # -- the node's header --------------------------------------------------------------------------------------------
    node_id: int = _number("<q", 0)
    """The node id of the present incarnation; 0 before it is registered."""
    lease_deadline: float = _number("<d", 8)
    """The monotonic time until which the node's lease surely holds."""
    draining: bool = _flag(16)
    """True when children must take no more."""
    listened: bool = _flag(17)
    """True while somebody (Flower) listens to task events."""
    activated: bool = _flag(18)
    """True once an agent has told the registry that this incarnation may be given work."""
    watched: bool = _flag(19)
    """True while somebody follows the changes of state: then beginnings are told too."""
    beside: bool = _flag(20)
    """True when children run tasks beside one another: their tables are worth looking at."""
    unheard: bool = _flag(21)
    """True while no tenant wants to be told of anything, so that the children need not look."""
    wanted: bool = _flag(22)
    """True while the worker may have other messages for its children than tokens."""
    agent_beat: float = _number("<d", 24)
    """The monotonic time of the agent's last sign of life."""

    def refuse(self, kind: Kind, count: int) -> None:
        """Count a refusal by one of the worker's processes. Two at once may count as one: no lock is worth that."""
        at = REFUSED_AT + 4 * _KINDS.index(kind)
        struct.pack_into("<I", self._memory, at, (struct.unpack_from("<I", self._memory, at)[0] + count) % 2**32)

    def refused(self) -> dict[str, int]:
        """How many of each kind the worker's processes have refused."""
        return dict(zip(_KINDS, struct.unpack_from(f"<{len(_KINDS)}I", self._memory, REFUSED_AT), strict=True))

    def is_forsaken(self, lease_s: float, now: float) -> bool:
        """Whether the node's lease is over and nobody renews it: its tasks run elsewhere by now."""
        return is_forsaken(now, until=self.lease_deadline, heard=self.agent_beat, lease_s=lease_s)

    def stop_without_lease(self, lease_s: float) -> None:
        """End this process, with all it has started, when its node is forsaken."""
        if self.is_forsaken(lease_s, time.monotonic()):
            log.error("the node's lease is over: this child stops before it acts again")
            process_tree.kill(process_tree.below(os.getpid()))
            os._exit(LEASE_OVER)

    def claims_of_others(self, *, slot: int = -1, table: int = -1) -> set[tuple[str, int]]:
        """The claims (task id, fence) that are noted anywhere but in one slot or table."""
        found: set[tuple[str, int]] = set()
        for index in range(self.slots):
            if index != slot and (other := self.slot(index)).is_open:
                found |= {(entry.task_id, entry.fence) for entry in other.entries()}
            if self.beside and index != table:
                found |= {(entry.task_id, entry.fence) for _, entry in self.table(index).entries()}
        return found

    def table(self, index: int) -> Table:
        self.slot(index)  # checks the index
        return Table(self._memory, HEADER_BYTES + index * SIZE + SLOT_SIZE, index)

    def slot(self, index: int) -> Slot:
        if not 0 <= index < self.slots:
            raise IndexError(f"the journal has {self.slots} slots, not one numbered {index}")
        return Slot(self._memory, HEADER_BYTES + index * SIZE, index)


class Table:
    """One child's places for tasks that run side by side: coroutines and threads.

    A place is noted before its task is started in the ledger, and free again once its end is recorded. The texts of ends
    lie behind all entries, so that looking at those reads little.
    """

    __slots__ = ("_base", "_free", "_memory", "index")

    def __init__(self, memory: mmap.mmap, base: int, index: int) -> None:
        self._memory = memory
        self._base = base
        self.index = index
        self._free: list[int] | None = None

    @property
    def free(self) -> list[int]:
        """Free places; the child's own list."""
        if self._free is None:
            self._free = list(range(PLACES - 1, -1, -1))
        return self._free

    def _at(self, place: int) -> int:
        return self._base + place * ENTRY_BYTES

    def _blob_at(self, place: int) -> int:
        return self._base + PLACES * ENTRY_BYTES + place * PLACE_BLOB

    def clear(self) -> None:
        """Free every place: a new child begins, or the account of a dead one is settled."""
        for place in range(PLACES):
            self._memory[self._at(place) + 40] = FREE

    def note(self, task_id: str, fence: int) -> int:
        """Take a free place for a claim; ``IndexError`` when there is none."""
        place = self.free.pop()
        raw = bytes.fromhex(task_id.replace("-", ""))
        _ENTRY.pack_into(self._memory, self._at(place), raw, fence, 0, 0.0, 0.0, WAITING, 0, 0, 0)
        return place

    def begin(self, place: int, cap_ms: int, now: float) -> None:
        at = self._at(place)
        _BEGUN_AT.pack_into(self._memory, at + 20, cap_ms, now)
        self._memory[at + 40] = BEGUN

    def end(self, place: int, now: float, blob: bytes) -> None:
        """Note how its task ended; what does not fit is noted as running until it is recorded."""
        if len(blob) > PLACE_BLOB:
            return
        at = self._at(place)
        if blob:
            start = self._blob_at(place)
            self._memory[start : start + len(blob)] = blob
        _DOUBLE.pack_into(self._memory, at + 32, now)
        _BLOB_AT.pack_into(self._memory, at + 48, 0, len(blob))
        self._memory[at + 40] = ENDED

    def release(self, place: int) -> None:
        self._memory[self._at(place) + 40] = FREE
        self.free.append(place)

    def cancel(self, place: int) -> None:
        """Ask the child to cancel its task (the agent's side)."""
        self._memory[self._at(place) + 41] = 1

    def cancelled(self, place: int) -> bool:
        """True when the agent wants its task to end."""
        return bool(self._memory[self._at(place) + 41])

    def is_any_over(self, moment: float) -> bool:
        """Whether one that runs had reached its cap at a moment; much less work than to read all that is noted."""
        if BEGUN not in self._states():
            return False
        entries = _RUN.iter_unpack(self._memory[self._base : self._at(PLACES)])
        return any(state == BEGUN and began + cap_ms / 1000 < moment for cap_ms, began, state in entries)

    def entries(self) -> list[tuple[int, Entry]]:
        if not self.holds():
            return []
        return [(place, self.entry(place)) for place, state in enumerate(self._states()) if state != FREE]

    def holds(self) -> bool:
        """Whether any place is held."""
        return self._states() != _ALL_FREE

    def _states(self) -> bytes:
        return self._memory[self._base + 40 : self._at(PLACES) : ENTRY_BYTES]

    def entry(self, place: int) -> Entry:
        return _entry(self._memory, self._at(place), self._blob_at(place))


class Slot:
    """One child's part of the journal."""

    def __init__(self, memory: mmap.mmap, base: int, index: int) -> None:
        self._memory = memory
        self._base = base
        self._entries = base + SLOT_BYTES
        self._numbers = memoryview(memory)[base : base + SLOT_BYTES].cast("i")
        """The slot's own numbers; for what is written with each task this costs a fifth of a property."""
        self._blob = 0
        self.index = index

    pid: int = _number("<i", _PID)
    """The child that owns the slot; 0 when the last one's account is settled."""
    current: int = _number("<i", _CURRENT)
    """Index of the task that runs, -1 between tasks."""
    count: int = _number("<i", _COUNT)
    """Tasks in the batch."""
    limit: int = _number("<i", _LIMIT)
    """The child begins no task from this index on."""
    batch: int = _number("<q", _BATCH)
    """Number of the batch, rising."""
    base_mb: int = _number("<i", _BASE_MB)
    """MiB that the child held, by its own account, before the task that runs; negative: it cannot say."""
    _open: int = _number("<i", _OPEN)
    _interrupt: int = _number("<i", _INTERRUPT)
    _outcome: int = _number("<i", _OUTCOME)

    @property
    def is_open(self) -> bool:
        """True from the start of a batch until it is recorded."""
        return self._open == 1

    def ahead(self) -> bool:
        """True for a batch that is started, or being started, ahead of its turn: none of it has begun."""
        if not self.is_open or self.current >= 0:
            return False
        return all(state == WAITING for state in self._states())

    def has_ended(self) -> bool:
        """Whether any task of its batch has ended."""
        return self.is_open and ENDED in self._states()

    def _states(self) -> bytes:
        return self._memory[self._entries + 40 : self._entries + self.count * ENTRY_BYTES : ENTRY_BYTES]

    # -- the child's side ---------------------------------------------------------------------------------------------
    def open(self, claims: Sequence[tuple[str, int]]) -> None:
        """Note a batch before it is started in the ledger, so that nothing started is missing from the journal."""
        self.narrow(claims)
        self._blob = 0
        self._interrupt = -1
        self.current = -1
        self.limit = len(claims)
        self.batch += 1
        self._open = 1

    def narrow(self, started: Sequence[tuple[str, int]]) -> None:
        """Note that only these of the batch were started. What the agent has taken away meanwhile stays away."""
        pack, memory, at = _ENTRY.pack_into, self._memory, self._entries
        for task_id, fence in started:
            pack(memory, at, bytes.fromhex(task_id.replace("-", "")), fence, 0, 0.0, 0.0, WAITING, 0, 0, 0)
            at += ENTRY_BYTES
        self.count = len(started)

    def begin(self, index: int, cap_ms: int, now: float) -> bool:
        """Note that a task begins; False when the agent has taken the rest of the batch away."""
        self._numbers[_CURRENT_AT] = index
        if index >= self._numbers[_LIMIT_AT]:
            self._numbers[_CURRENT_AT] = -1
            return False
        at = self._entries + index * ENTRY_BYTES
        _BEGUN_AT.pack_into(self._memory, at + 20, cap_ms, now)
        self._memory[at + 40] = BEGUN
        return True

    def end(self, index: int, now: float, blob: bytes) -> bool:
        """Note that a task ended, with ``blob``; False when it does not fit: record the batch so far first."""
        memory, at = self._memory, self._entries + index * ENTRY_BYTES
        if blob:
            if self._blob + len(blob) > BLOB_BYTES:
                return False
            start = self._entries + ENTRIES * ENTRY_BYTES + self._blob
            memory[start : start + len(blob)] = blob
            _BLOB_AT.pack_into(memory, at + 48, self._blob, len(blob))
            self._blob += len(blob)
        _DOUBLE.pack_into(memory, at + 32, now)
        memory[at + 40] = ENDED
        self._numbers[_CURRENT_AT] = -1
        return True

    def close(self) -> None:
        self._open = 0
        self.current = -1

    def wanted_interrupt(self) -> tuple[int, int] | None:
        """Index and outcome of the task the agent wants to end."""
        index = self._interrupt
        return (index, self._outcome) if index >= 0 else None

    # -- the agent's side ---------------------------------------------------------------------------------------------
    def ask_interrupt(self, index: int, outcome: int) -> None:
        """Note which task is to end, and with which outcome; a signal to the child follows."""
        self._outcome = outcome
        self._interrupt = index

    def running(self) -> Entry | None:
        index = self.current
        return self.entry(index) if self.is_open and 0 <= index < self.count else None

    def entry(self, index: int) -> Entry:
        return _entry(self._memory, self._entries + index * ENTRY_BYTES, self._entries + ENTRIES * ENTRY_BYTES)

    def entries(self) -> list[Entry]:
        return [self.entry(index) for index in range(self.count)]

    def settle(self) -> None:
        """Free the slot: the account of a dead child is settled."""
        self.close()
        self.pid = 0
