"""Which lines a round looks at, and how far into them: what it can use, and a little more.

Where few lines are active it looks at the heads of all. Where very many are, it reads where each of them stands, and the
heads of those alone that may come to their turn.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from operator import itemgetter
from typing import Any, Final

from scheduler_ext.core.types import CLIENT, LATE_GROUP, Behind, LineView, NodeView, Opening, TenantView, WorkKind
from slackwater_tasks.ledger.snapshot_rows import LineInfo, Reference, Sort, room_of

HEADS_PER_LINE: Final = 8
"""The least number of tasks of a line that a round looks at; more while few lines are active."""
MAX_NOMINATED: Final = 4096
"""The most tasks one round looks at."""
FEW: Final = 64
"""The least number of tasks a round looks at beside the heads of each line; more while they all find room."""
CROWD: Final = 256
"""A round looks at every line while no more than this are active."""
HEADS_IN_CROWD: Final = 2
"""The least number of tasks of a line that a round looks at where it does not look at all lines."""
SHORT_LINE: Final = 8
"""To read so many tasks of a line is less than to look for the next line."""
LOOK_S: Final = 1.0
"""Seconds between two looks at what waits while no node has room."""

Entry = tuple[bool, float, int, int, int]
"""A line's place among its like: without a guarantee, what it was served lately for its weight, its rank, its number."""
TURN: Final = 1
RANK: Final = 2
_by_turn: Final = itemgetter(slice(TURN, None))
_by_rank: Final = itemgetter(slice(RANK, None))


class Depth:
    """How much rounds look at; looking at tasks in vain is most of a round's cost."""

    def __init__(self, limit: int) -> None:
        """``limit``: the most tasks that one round claims."""
        self._limit = limit
        self._lines = 1
        self._cut = False
        self._want = FEW
        self._further = False
        """Whether to look further than the last round did, whatever room there is."""
        self._looked = float("-inf")
        self._kinds: Collection[WorkKind] = tuple(WorkKind)
        """The kinds of work that stood at the heads of lines."""
        self._seen = 0
        self.in_turn = FEW
        """How many tasks to read one after the other to see where lines stand, before each next one is looked for."""
        self.reach = 0
        """The room that what is looked at may need."""

    def stood(self, lines: int) -> None:
        """Note of how many lines the tasks were that were read one after the other: while lines are short, more are."""
        if lines * SHORT_LINE >= self.in_turn:
            self.in_turn = min(4 * self.in_turn, SHORT_LINE * self._lines + FEW)
        else:
            self.in_turn = max(FEW, self.in_turn // 4)

    def measure(self, nodes: Sequence[NodeView], given: Sequence[Opening], wanted: Mapping[int, int]) -> int:
        """The most tasks that the nodes, and what is ``given`` ahead, could take.

        Where only work beside processes stands at the heads of lines, it is enough to look at as many tasks as there is room
        for of those kinds, as long as that is used. ``wanted``: how many nodes that go on by themselves should be given, by
        their ids; no more are looked at.
        """
        room = self.reach = sum(map(room_of, nodes)) + sum(each.places * each.slot_milli for each in given)
        if not self._further and WorkKind.PROCESS not in self._kinds:
            near = sum(room_of(node, self._kinds) for node in nodes) + sum(each.places for each in given)
            self.reach = min(room, max(FEW, near))
        if wanted:
            self.reach = sum(min(room_of(node), wanted.get(node.node_id, room)) for node in nodes)
            self._want = max(self._want, self.reach)
        return room

    def saw(self, lines: Iterable[LineView]) -> None:
        """Note what stands at the heads of lines."""
        kinds = [task.kind for line in lines for task in line.heads]
        self._kinds, self._seen = set(kinds) or self._kinds, len(kinds)

    def found(self, lines: int, *, cut: bool) -> None:
        """Note how many lines were active, and whether tasks were left out."""
        self._lines, self._cut = max(1, lines), cut

    @property
    def crowded(self) -> bool:
        """Whether so many lines are active that a round looks at some of them."""
        return self._lines > CROWD

    def looks(self, room: int) -> bool:
        """Whether to look: while there is room, and otherwise now and then, for tasks that no node could ever run."""
        now = time.monotonic()
        if room or now - self._looked >= LOOK_S:
            self._looked = now
            return True
        return False

    def heads(self) -> int:
        """How many tasks of each line to look at: a little more than an even split.

        Where a line has less, the next round fills what is left.
        """
        wanted = self._wanted()
        part = wanted // self._lines + wanted // 16 + HEADS_PER_LINE
        return max(HEADS_PER_LINE, min(part, MAX_NOMINATED // self._lines))

    def most(self) -> int:
        """How many lines of each sort to look at where not all are: a little more than the claims a round can make."""
        wanted = self._wanted()
        return wanted + wanted // 8 + FEW

    def heads_of(self, lines: int) -> int:
        """How many tasks of each of so many lines to look at."""
        return self._wanted() // max(1, lines) + HEADS_IN_CROWD

    def _wanted(self) -> int:
        return min(self.reach, self._want, self._limit)

    def adapt(self, *, decided: int, more: bool) -> bool:
        """Look further next time where room was left; True if that round should come at once."""
        self._further = more and decided < self._seen
        if not more:
            self._want = max(FEW, 2 * decided, self._want // 4)
            return False
        before, self._want = self._want, min(4 * self._want, MAX_NOMINATED)
        return self._cut and (decided > 0 or self._want > before)


class Foremost:
    """Finds the lines that may come to their turn among the next claims, and who waits only in others.

    Lines whose tasks ask for the same, in one category and pool, are served by turns, and each claim lets its tenant hold
    more; so of those whose tenants hold nothing as many are enough as there are claims: those with a guaranteed share first,
    then by what they were served lately, then by rank. Where a share rule may put it otherwise the first in that order are among
    them as well: by rank alone in a pool, where past use counts as held, in whole shares and so often alike, and where several
    tiers wait, as room is kept for what has waited longest; without regard to guaranteed shares in a pool; and of those with a
    guaranteed share, where past use counts as held, by rank and by past use over the guarantee. All lines of tenants that hold
    something come along, and none of the others that may start nothing. The tenants of one client take one turn between them:
    where one comes along all do.
    """

    def __init__(self, known: Reference, tenants: Mapping[int, TenantView], pools: Collection[str],
                 past_use: Mapping[str, float], *, cell: str, keep: int = 0, remembers: bool = False) -> None:  # fmt: skip
        """``tenants``: with what each holds; ``pools``: those in which anything is held.

        ``keep``: the line of the task that room is kept for; ``remembers``: whether past use counts as held.
        """
        self._known = known
        self._tenants = tenants
        self._holding_pools = pools
        self._past_use = past_use
        self._cell = cell
        self._idle: defaultdict[Sort, list[Entry]] = defaultdict(list)
        self._clients: dict[str, _Client] = {}
        self._waiting: defaultdict[int | None, set[int]] = defaultdict(set)
        """By pool: the tenants that hold nothing and wait."""
        self._remembers = remembers
        self._tiers = set[int]()
        """The tiers of all that waits."""
        self._chosen = {keep}

    def choose(self, standing: Iterable[tuple[int, int, int]], most: int) -> list[int]:
        """The lines to look at for ``most`` claims.

        ``standing``: each active line with the rank of its first task (group, number).
        """
        self._sort(standing)
        chosen = self._chosen
        by_rank = self._remembers or len(self._tiers) > 1
        for (*_, pool), entries in self._idle.items():
            self._choose(entries, most)
            if pool is None and not by_rank:
                continue
            first, last = min(entries), max(entries)
            if pool is not None and first[:TURN] != last[:TURN]:
                self._choose(entries, most, _by_turn)
            if first[:RANK] != last[:RANK]:
                self._choose(entries, most, _by_rank)
            if self._remembers and not first[0]:
                guaranteed = [entry for entry in entries if not entry[0]]
                self._choose(guaranteed, most, _by_rank)
                self._choose(guaranteed, most, self._by_guarantee)
        chosen.intersection_update(self._known.lines)
        for name in {self._known.lines[line_id].alike for line_id in chosen} - {""}:
            if name in self._clients:
                chosen.update(self._clients[name].lines)
        return list(chosen)

    def _by_guarantee(self, entry: Entry) -> tuple[float, ...]:
        """A line's place by past use over what is guaranteed to its tenant."""
        _, use, *rank, line_id = entry
        tenant = self._tenants[self._known.lines[line_id].tenant_id]
        return (use * (tenant.weight or 1) / tenant.guaranteed_permille, *rank, line_id)

    def _choose(self, entries: Sequence[Entry], most: int, key: Callable[[Entry], Any] | None = None) -> None:
        """Choose the first, until they are of ``most`` clients and tenants: of what is late one may have several lines."""
        members, looked = set[str | int](), 0
        while looked < len(entries):
            # Nearly always each is of another, and there are many more than the first: to sort them all would cost more.
            before, looked = looked, max(4 * looked, most + 1)
            for *_, line_id in nsmallest(looked, entries, key)[before:]:
                info = self._known.lines[line_id]
                member = info.alike or info.tenant_id
                if member not in members:
                    if len(members) >= most:
                        return
                    members.add(member)
                self._chosen.add(line_id)

    def _sort(self, standing: Iterable[tuple[int, int, int]]) -> None:
        turns, tenants, here = self._known.turns(), self._tenants, self._cell
        idle, waiting, tiers, past_use = self._idle, self._waiting, self._tiers, self._past_use
        for line_id, group, rank in standing:
            turn = turns.get(line_id)
            if turn is None:
                self._sort_other(line_id, group, rank)
                continue
            tenant_id, name, no_guarantee, weight, sort, pool_id, tier_id, cell = turn
            tenant = tenants.get(tenant_id)
            if tenant is None or cell != here:
                continue
            tiers.add(tier_id)
            if tenant.in_flight:
                self._chosen.add(line_id)
                continue
            waiting[pool_id].add(tenant_id)
            use = past_use.get(name, 0.0) / weight if past_use else 0.0
            idle[sort if group != LATE_GROUP else _late(sort)].append((no_guarantee, use, group, rank, line_id))

    def _sort_other(self, line_id: int, group: int, rank: int) -> None:
        """The same for a line of a client, and for one that comes along in any case or may start nothing."""
        info = self._known.lines.get(line_id)
        tenant = self._tenants.get(info.tenant_id) if info is not None else None
        if info is None or tenant is None or info.cell != self._cell:
            return
        self._tiers.add(info.tier_id)
        if info.alike:
            self._sort_shared(line_id, info, tenant, group, rank)
        elif tenant.in_flight or info.tenant_id in self._known.split:
            self._chosen.add(line_id)
        elif not (info.paused or tenant.paused):
            self._waiting[info.pool_id].add(info.tenant_id)

    def _sort_shared(self, line_id: int, info: LineInfo, tenant: TenantView, group: int, rank: int) -> None:
        """The same for a line of a client, which holds what all its tenants hold."""
        client = self._clients.setdefault(info.alike, _Client())
        client.add(line_id, tenant)
        name = f"{CLIENT}{info.alike}"
        if name in self._holding_pools or info.tenant_id in self._known.split:
            self._chosen.add(line_id)
        elif not (info.paused or tenant.paused):
            client.waits = True
            if tenant.max_in_flight != 0:
                use = self._past_use.get(f"pool {name}", 0.0) / (tenant.weight or 1)
                entry = (not tenant.guaranteed_permille, use, group, rank, line_id)
                self._idle[info.sort if group != LATE_GROUP else _late(info.sort)].append(entry)

    def waits(self, pool_of: Callable[[int | None], str]) -> tuple[Behind, ...]:
        """Who waits behind the chosen lines. ``pool_of``: names a pool by its number."""
        behind = Counter[tuple[int | None, int]]()
        chosen = [self._known.lines[line_id] for line_id in self._chosen]
        for pool_id, waiting in self._waiting.items():
            left = waiting - {info.tenant_id for info in chosen if info.pool_id == pool_id}
            for weight, count in Counter([self._tenants[tenant_id].weight for tenant_id in left]).items():
                behind[pool_id, weight] = count
        for client in self._clients.values():
            if client.waits and self._chosen.isdisjoint(client.lines):
                behind[None, client.weight] += 1
        return tuple(Behind(pool=pool_of(pool_id), weight=weight, tenants=count)
                     for (pool_id, weight), count in behind.items())  # fmt: skip


def _late(sort: Sort) -> Sort:
    """What tasks past their latest start have in common: their category is no matter."""
    return (LATE_GROUP, *sort[1:])


class _Client:
    """What the tenants of one client have in common."""

    __slots__ = ("lines", "waits", "weight")

    def __init__(self) -> None:
        self.lines: list[int] = []
        self.weight = 1
        self.waits = False
        """Whether it holds nothing, and work of it waits that is not paused."""

    def add(self, line_id: int, tenant: TenantView) -> None:
        """Note a line; the client has the best of its tenants' weights."""
        self.lines.append(line_id)
        self.weight = max(self.weight, tenant.weight)
