"""The chooser's tree kept for a whole simulated run: it takes tasks as they arrive and gives back what has ended."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Sequence
from heapq import heappop, heappush
from math import exp
from typing import Any, Final, NamedTuple, cast

from scheduler_ext.core.labels import Labels
from scheduler_ext.core.types import MILLI, PROCESS, LineView, Reason, Snapshot, TaskView, Vector, WorkKind
from scheduler_ext.policies.accounts import LAST, Account
from scheduler_ext.policies.base import CATEGORY_REASONS
from scheduler_ext.policies.holdings import taken_by
from scheduler_ext.policies.tree import SHORT_MEMORY_S, Path, Rules, TreeChooser
from scheduler_ext.policies.tree_nodes import Branch, Line, Place, place_of

LOOKED_AT: Final = 4
"""Tasks of a line, first in line first, of which one may start for an account that starves."""
MAX_SPAN: Final = 300.0
"""After so many times the memory all that is remembered is counted from a new landmark, so that no number overflows."""


Need = tuple[Vector, WorkKind, Labels | None]
"""What a line's tasks ask for, as far as room depends on it: lines that ask for the same wait together."""


class Ages:
    """The tasks that wait below an inner account, by place."""

    __slots__ = ("account", "branches", "heap")

    def __init__(self, account: Account, branches: list[Branch]) -> None:
        self.account = account
        self.branches = branches
        self.heap: list[tuple[Place, int, TaskView]] = []

    def settle(self, waiting: set[int]) -> bool:
        """Drop those that wait no more and note the place of the first; True when it has moved forward."""
        heap, account = self.heap, self.account
        while heap and (id(heap[0][2]) not in waiting or heap[0][2].rank != heap[0][0][0]):
            heappop(heap)
        place = heap[0][0] if heap else LAST
        if place == account.place:
            return False
        forward = place < account.place
        account.place = place
        account.version += 1
        return bool(forward)


class Starving(NamedTuple):
    """An account below its minimum share, and the first of its tasks that may start."""

    account: Account
    line: LineView
    head: TaskView


class RunningTree(TreeChooser):
    """A tree of lines for each vector, kind of slot, label set and category, over one set of accounts.

    When a task finds no room, all lines that ask for the same wait together, untouched, until there is room for
    it; so do all lines of a category and kind at its ceiling.
    """

    def __init__(self, snapshot: Snapshot, rules: Rules) -> None:
        self._skipped: list[Line] = []
        self._dropped: list[Line] = []
        self._left: list[Account] = []
        super().__init__(snapshot, rules)
        if not snapshot.pools and not any(tenant.used for tenant in snapshot.tenants.values()):
            self._measure.counted = self._measure.asked  # what no line asks for, nobody will ever hold
        self._step = self._step_of(snapshot)
        """Where all lines ask for the same, the share of one task."""
        self.blocked: set[Need] = set()
        """Needs that found no room."""
        self._shut: set[tuple[int, WorkKind]] = set()
        """Categories at their ceiling, by the slots they would take."""
        self._returned: dict[int, Vector] = {}
        """By line: what a task of it gives back, as a negative amount."""
        self._open: list[list[Branch]] = []
        self._sorted: dict[Any, list[list[Branch]]] = {}
        self._sort_roots()
        self._all = self._open
        of_account: dict[Path, list[Branch]] = {}
        for (_, _, path), branch in self._branches.items():
            of_account.setdefault(path, []).append(branch)
        self._chains = {
            line_id: [branch for length in range(len(path), 0, -1) for branch in of_account[path[:length]]]
            for line_id, path in self._paths.items()
        }
        self._ages = [
            Ages(self._accounts[path], branches) for path, branches in of_account.items() if not branches[0].leaf
        ]
        self._ages_above = (
            {
                line_id: [ages for ages in self._ages if ages.account in _above(state.leaf.account)]
                for line_id, state in self._lines.items()
            }
            if self._ages
            else {}
        )
        self._deepest = [branch for _, branch in sorted(self._branches.items(), key=lambda item: -len(item[0][2]))]
        self._memory_s = rules.memory_s
        roots = [root for category in self._all for root in category]
        self._is_flat = bool(self._step) and len(roots) == 1 and all(map(_flat, self._deepest))
        if rules.memory_s:
            self._grown = 1.0
            for account in self._accounts.values():
                account.served, account.served_at = float(account.past), 1.0
        self._waiting: set[int] = set()
        """With nested pools: the tasks that wait, by the identity of their objects."""
        self.now = 0.0
        """Seconds since the run began; set by whoever keeps the clock."""
        self._landmark = 0.0
        self._unit = 1.0 if rules.memory_s else SHORT_MEMORY_S / max(1, self._measure.whole)
        """What a share of one counts at the landmark."""
        self._grown_at = 0.0

    def pick(self) -> tuple[LineView, TaskView] | None:
        """The next task to try, among those that may find room."""
        trees = self._open
        line = self._front(trees[0]) if len(trees) == 1 else self._first(map(self._front, trees))
        return (line.view, line.heads[line.at]) if line is not None else None

    def _front(self, roots: list[Branch]) -> Line | None:
        """The line to serve next in the trees of one category."""
        best = self._descend(roots[0])
        for root in roots[1:]:
            line = self._descend(root)
            if line is not None and (best is None or _before(line, best)):
                best = line
        return best

    def _step_of(self, snapshot: Snapshot) -> int:
        """The share of one task where all ask for the same; 0 where they do not, or accounts are to know more than shares."""
        needs = {(taken_by(line, line.kind), line.kind) for line in snapshot.lines}
        if len(needs) != 1 or self._bounded or self._floors or any(each.share for each in self._accounts.values()):
            return 0
        ((vector, kind),) = needs
        return self._measure.share({kind: MILLI}, vector)

    def settle(self) -> None:
        """Begin a round: an account without work is due nothing, and pools go by the task that waits longest in them."""
        for top in self._left:
            self._gone(top)
        self._left.clear()
        for ages in self._ages:
            if ages.settle(self._waiting):
                for branch in ages.branches:
                    branch.push(self._clock)

    def _charge(self, account: Account, kind: WorkKind, milli: int, vector: Vector) -> None:
        """As in a round, where time stands still; it runs twice for every task of a trace."""
        growth = self._grown if self._grown_at == self.now else self._growth()
        each, above, plain = account, account.parent, self._plain_key
        step = self._step if milli > 0 else -self._step
        while above is not None:
            share = each.share
            if each.served_at != growth:
                each.served += share * (growth - each.served_at)
                each.served_at = growth
            if step:
                share = each.share = share + step
                each.version += 1
            else:
                each.hold(kind, milli, vector)
                share = each.share
            each.tie = (each.served - share * growth) / each.turns
            each.key = (share + each.past) * each.weight if plain else self._rules.key(each)
            each, above = above, above.parent
        if each.counts:
            each.hold(kind, milli, vector)

    def _is_due(self, line: Line, top: Account) -> bool:
        return (top.share + self._step) * top.weight <= self._fair if self._step else super()._is_due(line, top)

    def accept(self, line: LineView, task: TaskView, milli: int = MILLI) -> None:
        if self._ages:
            self._waiting.discard(id(task))
        state, kind = self._lines[line.line_id], task.kind
        taken = line.vector if self._step or kind is PROCESS else taken_by(line, kind)
        self._charge(state.leaf.account, kind, milli, taken)
        state.advance()
        state.top.waits -= 1

    def following(self, line: LineView) -> Sequence[TaskView]:
        """None: in a simulated run others arrive in between."""
        del line
        return ()

    def accept_alone(self, line: LineView, task: TaskView) -> None:
        """Start a task that became ready while nothing else waits: as if offered, picked and accepted."""
        top = self._lines[line.line_id].top
        if not top.share:
            self._share_out(self._due + top.turns)
        self._charge(self._lines[line.line_id].leaf.account, task.kind, MILLI, taken_by(line, task.kind))

    def take(self, line: LineView, task: TaskView) -> None:
        self._charge(self._lines[line.line_id].leaf.account, task.kind, MILLI, taken_by(line, task.kind))
        self.withdraw(line, task)

    def leave(self, line: LineView, task: TaskView) -> None:
        """Take the task just picked out of its line without placing it; in this round it still counts as waiting."""
        self._waiting.discard(id(task))
        state = self._lines[line.line_id]
        state.skip()
        self._left.append(state.top)

    @property
    def waits_for_room(self) -> bool:
        """Whether something was passed over and must be tried again once there is room."""
        return bool(self._shut) or self.passed_over

    @property
    def passed_over(self) -> bool:
        """The same, but for categories at their ceilings."""
        return bool(self.blocked or self._skipped or self._dropped)

    @property
    def is_shut(self) -> bool:
        """Whether all categories are at their ceilings, or nothing finds room."""
        return not self._open

    def hand_over(self, would_open: Callable[[LineView, int], bool], is_full: Callable[[], bool], *,
                  more: bool) -> tuple[LineView, TaskView] | None:  # fmt: skip
        """The task that starts in the place of one that has just ended: all ask for the same, and all that wait were refused.

        Categories at their ceilings are opened to see who is next, and shut again if ``more`` wait.
        """
        if self._left or self._ages:
            self.settle()
        kept, opened = self._shut, self._open
        self._shut, self._open = set(), self._all
        picked = self.pick()
        if picked is None or (self._bounded and self.refusal(*picked, MILLI)) or not would_open(picked[0], 1):
            return None
        self.accept(*picked)
        if more:
            self._shut_again(kept, opened, is_full)
        return picked

    def swaps(self, is_full: Callable[[], bool]) -> bool:
        """Whether :meth:`swap` can decide: all ask for the same, in one tree of accounts without others in them."""
        del is_full
        return self._is_flat and not self.passed_over

    def swap(self, line: LineView) -> TaskView:
        """Give back what an ended task of ``line`` held, and start the task that is next in its place.

        As ``release``, ``pick`` and ``accept``, written out, since it runs for every task of a long log. All ask for
        the same, and at least one waits.
        """
        clock, growth = self._clock, self._growth()
        ((root,),) = self._all
        top = self._lines[line.line_id].top
        self._move(top, -self._step, growth)
        if not top.waits and not top.share:
            self._share_out(self._due - top.turns)
        for branch in self._chains[line.line_id]:
            if branch.heap:
                branch.push(clock)
        state = self._descend(root)
        assert state is not None
        task = state.heads[state.at]
        top = state.top
        self._move(top, self._step, growth)
        state.advance()
        top.waits -= 1
        return task

    def _move(self, top: Account, step: int, growth: float) -> None:
        """What :meth:`_charge` does for an account at the top where all ask for the same."""
        if top.served_at != growth:
            top.served += top.share * (growth - top.served_at)
            top.served_at = growth
        share = top.share = top.share + step
        top.version += 1
        top.tie = (top.served - share * growth) / top.turns
        top.key = (share + top.past) * top.weight if self._plain_key else self._rules.key(top)

    def _shut_again(
        self, shut: set[tuple[int, WorkKind]], opened: list[list[Branch]], is_full: Callable[[], bool]
    ) -> None:
        """Shut the categories that were at their ceilings; ``is_full`` tells whether no room is left."""
        del is_full
        self._shut, self._open = shut, opened

    @property
    def has_floors(self) -> bool:
        return self._floors

    def account_of(self, line: LineView) -> Account:
        return self._lines[line.line_id].leaf.account

    def starving(self, may_start: Callable[[LineView, TaskView], bool]) -> list[Starving]:
        """The accounts below their minimum share that have work waiting which may start, were there room for it."""
        found: dict[int, Starving] = {}
        for state in self._lines.values():
            waiting = [*state.skipped[:LOOKED_AT], *state.heads[state.at : state.at + LOOKED_AT]]
            each: Account | None = state.leaf.account if waiting else None
            head: TaskView | None = None
            while each is not None:
                if each.share < each.floor:
                    if head is None:
                        head = next((task for task in waiting if may_start(state.view, task)), None)
                    if head is None:
                        break
                    if id(each) not in found or head.rank < found[id(each)].head.rank:
                        found[id(each)] = Starving(each, state.view, head)
                each = each.parent
        return list(found.values())

    def offer(self, line: LineView, task: TaskView) -> None:
        """Add a task that became ready to its line (one of those the run began with)."""
        state = self._lines[line.line_id]
        heads, at, top = state.heads, state.at, state.top
        if not top.waits and not top.share:
            self._share_out(self._due + top.turns)
        top.waits += 1
        if self._ages:
            self._waiting.add(id(task))
            place = place_of(task, line.line_id)
            for ages in self._ages_above[line.line_id]:
                heappush(ages.heap, (place, id(task), task))
        if at >= len(heads) or heads[-1].rank <= task.rank:
            heads.append(task)
            if at < len(heads) - 1:
                return
        else:
            insort(heads, task, lo=at, key=_rank)
            if heads[at] is not task:
                return
        self._enter(state)

    def withdraw(self, line: LineView, task: TaskView) -> None:
        """Take a waiting task out of its line."""
        self._waiting.discard(id(task))
        state = self._lines[line.line_id]
        self._gone(state.top)
        if any(passed is task for passed in state.skipped):
            state.skipped = [passed for passed in state.skipped if passed is not task]
            return
        place = bisect_left(state.heads, task.rank, lo=state.at, key=_rank)
        while state.heads[place] is not task:
            place += 1
        self._remove(state, place)

    def release(self, line: LineView, milli: int = MILLI) -> None:
        """Give back what an ended task of ``line`` held."""
        state = self._lines[line.line_id]
        back = self._returned.get(line.line_id)
        if back is None and not self._step:
            back = self._returned[line.line_id] = tuple([-need for need in taken_by(line, line.kind)])
        self._charge(state.leaf.account, line.kind, -milli, back or ())
        if not state.top.waits and not state.top.share:
            self._share_out(self._due - state.top.turns)
        clock = self._clock
        for branch in self._chains[line.line_id]:
            if branch.heap:
                branch.push(clock)

    def reject(self, line: LineView, task: TaskView, reason: Reason) -> None:
        """As in a round; after a lack of room, all that ask for the same wait."""
        if reason is Reason.NO_SLOT:
            self.blocked.add((line.vector, line.kind, line.labels))
            self._sort_roots()
        elif reason in CATEGORY_REASONS:
            self._shut.add((int(line.category), line.kind))
            self._sort_roots()
        elif reason is Reason.HARD_SHARE:
            self._drop(self._lines[line.line_id])
        else:
            super().reject(line, task, reason)

    def reopen(self, has_room: Callable[[Vector, WorkKind, Labels | None], bool]) -> None:
        """Try again what was passed over, and all for which there is room now: room has come back."""
        for state in self._skipped:
            passed = sorted(state.skipped, key=_rank)
            start = state.at - len(passed)
            state.heads[start : state.at] = passed
            if passed and state.at < len(state.heads) and state.heads[state.at].rank < passed[-1].rank:
                state.heads[start:] = sorted(state.heads[start:], key=_rank)  # one that came meanwhile stands before
            state.at = start
            state.skipped = []
            if start < len(state.heads):
                self._enter(state)
        self._skipped.clear()
        for state in self._dropped:
            if state.at < len(state.heads):
                self._enter(state)
        self._dropped.clear()
        if self.blocked or self._shut:
            self.blocked = {need for need in self.blocked if not has_room(*need)}
            self._shut.clear()
            self._sort_roots()

    def _gone(self, top: Account) -> None:
        """Count a task as waiting no more though it was not placed; an account without work is due nothing."""
        top.waits -= 1
        if not top.waits and not top.share:
            self._share_out(self._due - top.turns)

    def _growth(self) -> float:
        """What a share of one, held until now for ever, counts as served.

        What is remembered fades by the same part for all, so it need not be made to: what is added grows instead
        ("forward decay", Cormode and others, 2009).
        """
        if self._grown_at != self.now:
            self._grown_at = self.now
            span = (self.now - self._landmark) / (self._memory_s or SHORT_MEMORY_S)
            if span > MAX_SPAN:
                self._begin_anew(exp(min(span, 2 * MAX_SPAN)))
                span = 0.0
            self._grown = exp(span) * self._unit
        return self._grown

    def _begin_anew(self, growth: float) -> None:
        """Count from a new landmark, beside which what was remembered has faded by ``growth``."""
        self._landmark, unit = self.now, self._unit
        for account in self._accounts.values():
            left = (account.served - account.share * account.served_at) / growth
            account.served, account.served_at = left + account.share * unit, unit
            self._place_anew(account, left, unit)
            account.version += 1
        for branch in self._deepest:
            branch.push(self._clock)

    def _place_anew(self, account: Account, left: float, unit: float) -> None:
        del unit
        account.tie = left / account.turns

    def _sort_roots(self) -> None:
        """The trees to choose from, category by category; cached, since the same few sets recur."""
        state = (frozenset(self.blocked), frozenset(self._shut))
        known = self._sorted.get(state)
        if known is None:
            by_category: dict[int, list[Branch]] = {}
            for key, root in self._roots.items():
                need, category = cast("tuple[Need, int]", key)
                if need not in self.blocked and (category, need[1]) not in self._shut:
                    by_category.setdefault(category, []).append(root)
            known = self._sorted[state] = [by_category[category] for category in sorted(by_category)]
        self._open = known

    def _root_of(self, view: LineView) -> Hashable:
        return ((view.vector, view.kind, view.labels), view.precedence)

    def _drop(self, state: Line) -> None:
        self._dropped.append(state)
        state.drop()

    def _pass_over(self, state: Line, task: TaskView) -> None:
        if not state.skipped:
            self._skipped.append(state)
        state.skipped.append(task)
        state.skip()


def _before(first: Line, second: Line) -> bool:
    """Whether the front of one tree comes before that of another, as it would if both were one tree."""
    one, other = first.leaf, second.leaf
    if one.entry[0] == other.entry[0] and one.entry[1] != other.entry[1] and _flat(one) and _flat(other):
        return bool(one.entry[1] < other.entry[1])  # the usual case, spared the chains
    for one, other in zip(_chain(first), _chain(second), strict=False):
        if one.entry[:3] != other.entry[:3]:
            return bool(one.entry[:3] < other.entry[:3])
        if one.account is not other.account:
            return bool(one.entry[3] < other.entry[3])
    return bool(first.entry[0] < second.entry[0])


def _flat(branch: Branch) -> bool:
    return branch.up is not None and branch.up.up is None


def _chain(line: Line) -> list[Branch]:
    """The branches from the top down to a line, without the root."""
    chain: list[Branch] = []
    branch = line.leaf
    while branch.up is not None:
        chain.append(branch)
        branch = branch.up
    chain.reverse()
    return chain


def _above(account: Account) -> list[Account]:
    found = []
    while account.parent is not None:
        account = account.parent
        found.append(account)
    return found


def _rank(task: TaskView) -> tuple[int, int]:
    return task.rank
