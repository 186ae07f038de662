"""The chooser behind every share policy: a tree of accounts, served by the smallest key at each level.

Inside every category stands the same tree (tenants, or pools with tenants in them); its accounts span the
categories. Entries wait in heaps and are brought up to date only when they come to the front, so a pick or
an answer costs the logarithm of the number of lines. The simulator keeps one such tree for a whole run: it
offers tasks as they arrive and gives back what ended; a round of the dispatcher uses it once.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from math import lcm
from typing import Any, Final, Protocol

from scheduler_ext.core.types import MILLI, LineView, Reason, Snapshot, TaskView, TenantView, Vector
from scheduler_ext.policies.accounts import Account, Measure
from scheduler_ext.policies.base import CATEGORY_REASONS, LINE_REASONS, TENANT_REASONS

AFTER_GUARANTEED: Final = 100
"""Added to the category of what has its guaranteed share."""
_STALE: Final = 64
"""A heap is cleaned when it holds this many entries more than twice its children."""
_TRIM: Final = 512
"""Served tasks are dropped from the front of a line when there are more than this."""

Path = tuple[str, ...]
_Tie = tuple[int, float, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a policy says of one account."""

    weight: int = 1
    floor: int = 0
    """Guaranteed share, in the measure's parts."""
    limit: int | None = None


class Rules(Protocol):
    """A share policy as the tree sees it."""

    @property
    def vectors(self) -> bool:
        """Whether shares count resources, or slots alone."""
        ...

    @property
    def memory_s(self) -> int:
        """Past use counts as held for this long; 0: it does not count."""
        ...

    def path(self, line: LineView) -> Path:
        """Names of the accounts a line belongs to, from the top."""
        ...

    def terms(self, path: Path, tenant: TenantView | None, above: Account, measure: Measure) -> Terms:
        """Weight, floor and maximum of the account at ``path``; ``tenant`` is set for a tenant's own
        account."""
        ...

    def key(self, account: Account) -> Any:
        """Place among siblings, smaller first; keys of one level must compare with each other."""
        ...

    def owned(self, line: LineView) -> bool:
        """Whether the last account of the line's path is its tenant's own (else tenants share it, by
        rank)."""
        ...


class _Line:
    """A line and the place reached in it."""

    __slots__ = ("at", "entry", "heads", "leaf", "skipped", "view")

    def __init__(self, view: LineView, leaf: _Branch) -> None:
        self.view = view
        self.leaf = leaf
        self.heads: list[TaskView] = list(view.heads)
        self.at = 0
        self.skipped: list[TaskView] = []
        """Tasks passed over since the line was last reopened."""
        self.entry: Any = None

    def tie(self) -> _Tie:
        head = self.heads[self.at]
        return (-head.priority, head.submitted_at, self.view.line_id)


class _Branch:
    """One account in one category: children, or for a leaf lines, in a heap."""

    __slots__ = ("account", "below", "category", "entry", "heap", "leaf", "seen", "up")

    def __init__(self, account: Account, up: _Branch | None, category: int, *, leaf: bool) -> None:
        self.account = account
        self.up = up
        self.category = category
        self.below = 0
        """Children it has in all; its heap holds some of them more than once, all but one out of date."""
        self.leaf = leaf
        self.heap: list[Any] = []
        self.entry: Any = None
        self.seen = -1


class TreeChooser:
    """One round (or one simulated run) of a share policy."""

    __slots__ = (
        "_accounts",
        "_branches",
        "_categories",
        "_closed",
        "_counter",
        "_current",
        "_lines",
        "_measure",
        "_of_tenant",
        "_reopen",
        "_root",
        "_rules",
    )

    def __init__(self, snapshot: Snapshot, rules: Rules) -> None:
        self._rules = rules
        self._measure = Measure(snapshot, vectors=rules.vectors)
        top = Account("", None, self._measure)
        self._accounts: dict[Path, Account] = {(): top}
        self._branches: dict[tuple[int, Path], _Branch] = {}
        self._categories: list[int] = []
        self._counter = 0
        self._root = _Branch(top, None, 0, leaf=False)
        self._lines: dict[int, _Line] = {}
        self._of_tenant: dict[int, list[_Line]] = {}
        self._closed: set[int] = set()
        self._reopen: list[_Line] = []
        self._current: _Line | None = None
        self._open_accounts(snapshot)
        for line in snapshot.lines:
            if line.heads:
                self._add_line(line)
        self._order_all()

    # -- one round ---------------------------------------------------------------------------------

    def pick(self) -> tuple[LineView, TaskView] | None:
        """The next task to try, or ``None`` when nothing is left."""
        branch = self._root
        while True:
            heap = branch.heap
            if branch.leaf:
                line = self._front_line(branch)
                if line is not None:
                    self._current = line
                    return line.view, line.heads[line.at]
            elif (child := self._front_child(heap)) is not None:
                branch = child
                continue
            if branch.up is None:
                return None
            self._leave(branch)
            branch = self._root

    def accept(self, line: LineView, task: TaskView, milli: int = MILLI) -> None:
        """The task just picked was placed; it takes ``milli`` thousandths of a slot."""
        del task
        state = self._lines[line.line_id]
        self._charge(state.leaf.account, milli, line.vector)
        self._advance(state)

    def reject(self, line: LineView, task: TaskView, reason: Reason) -> None:
        """The task just picked stays, and with it what the reason covers."""
        state = self._lines[line.line_id]
        if reason in CATEGORY_REASONS:
            self._closed.add(int(line.category))
        elif reason in LINE_REASONS:
            self._drop(state)
        elif reason in TENANT_REASONS and reason is not Reason.HARD_SHARE:
            for other in self._of_tenant[line.tenant_id]:
                self._drop(other)
        else:
            if not state.skipped:
                self._reopen.append(state)
            state.skipped.append(task)
            self._advance(state)

    def refusal(self, line: LineView, task: TaskView, milli: int) -> Reason | None:
        """``HARD_SHARE`` when the task would take its account, or one above, beyond its maximum."""
        del task
        if self._lines[line.line_id].leaf.account.allows(milli, line.vector):
            return None
        return Reason.HARD_SHARE

    # -- a whole run -------------------------------------------------------------------------------

    def offer(self, line: LineView, task: TaskView) -> None:
        """A task has become ready in its line."""
        state = self._lines.get(line.line_id)
        if state is None:
            state = self._add_line(line)
        heads, at = state.heads, state.at
        if at >= len(heads) or heads[-1].rank <= task.rank:
            heads.append(task)
            if at < len(heads) - 1:
                return
        else:
            insort(heads, task, lo=at, key=_rank)
            if heads[at] is not task:
                return
        self._enter(state)

    def release(self, line: LineView, milli: int = MILLI) -> None:
        """A task of ``line`` has ended and gives back what it took."""
        leaf = self._lines[line.line_id].leaf
        self._charge(leaf.account, -milli, tuple([-need for need in line.vector]))
        path = self._rules.path(line)
        for category in self._categories:
            branch = self._branches.get((category, path))
            if branch is not None:
                self._push(branch)

    def reopen(self) -> None:
        """Try again what was passed over: room has come back."""
        for state in self._reopen:
            passed = state.skipped
            start = state.at - len(passed)
            state.heads[start : state.at] = passed
            state.at = start
            state.skipped = []
            self._enter(state)
        self._reopen.clear()
        if self._closed:
            closed, self._closed = self._closed, set()
            for branch in self._branches.values():
                if branch.category in closed and branch.heap and branch.up is self._root:
                    self._push(branch)

    # -- building ----------------------------------------------------------------------------------

    def _open_accounts(self, snapshot: Snapshot) -> None:
        """Open an account for each path and count what is in flight on it."""
        for name, pool in sorted(snapshot.pools.items()):
            account = self._account(tuple(name.split("/")), None)
            account.charge(pool.used_slots_milli, pool.used)
            self._remember(account, pool.past_use)
        counted: set[tuple[Path, int]] = set()
        for line in snapshot.lines:
            path = self._rules.path(line)
            if (path, line.tenant_id) in counted:
                continue
            counted.add((path, line.tenant_id))
            tenant = snapshot.tenants.get(line.tenant_id) or TenantView(tenant_id=line.tenant_id)
            account = self._account(path, tenant if self._rules.owned(line) else None)
            if line.pool not in snapshot.pools:
                account.charge(tenant.used_slots_milli, tenant.used)
            elif self._rules.owned(line):
                account.hold(tenant.used_slots_milli, tenant.used)
            self._remember(account, tenant.past_use)
        self._weigh()

    def _remember(self, account: Account, past_use: float) -> None:
        if self._rules.memory_s and past_use:
            account.past += int(past_use * self._measure.whole / self._rules.memory_s)

    def _account(self, path: Path, tenant: TenantView | None) -> Account:
        known = self._accounts.get(path)
        if known is not None:
            return known
        above = self._account(path[:-1], None)
        account = self._accounts[path] = Account(path[-1], above, self._measure)
        terms = self._rules.terms(path, tenant, above, self._measure)
        account.weight, account.floor, account.limit = terms.weight, terms.floor, terms.limit
        return account

    def _weigh(self) -> None:
        """Turn weights into multipliers, so that no key is ever divided."""
        weights = {max(1, account.weight) for account in self._accounts.values()}
        common = lcm(*weights)
        exact = common.bit_length() <= 128
        for account in self._accounts.values():
            weight = max(1, account.weight)
            account.weight = common // weight if exact else (1 << 128) // weight
            account.key = self._rules.key(account)

    def _add_line(self, view: LineView) -> _Line:
        path = self._rules.path(view)
        leaf = self._branch(int(view.category), path, leaf=True)
        state = self._lines[view.line_id] = _Line(view, leaf)
        self._of_tenant.setdefault(view.tenant_id, []).append(state)
        if state.heads:
            state.entry = (state.heads[0].rank, state.tie(), state)
            leaf.heap.append(state.entry)
        return state

    def _branch(self, category: int, path: Path, *, leaf: bool = False) -> _Branch:
        if not path:
            return self._root
        known = self._branches.get((category, path))
        if known is None:
            if category not in self._categories:
                self._categories.append(category)
            up = self._branch(category, path[:-1])
            up.below += 1
            known = self._branches[category, path] = _Branch(self._accounts[path], up, category, leaf=leaf)
        return known

    def _order_all(self) -> None:
        """Leaves first, so that each entry above is made from a heap in order."""
        branches = sorted(self._branches.items(), key=lambda item: -len(item[0][1]))
        for _, branch in branches:
            heapify(branch.heap)
            assert branch.up is not None
            if branch.heap:
                branch.up.heap.append(self._entry(branch))
        heapify(self._root.heap)

    # -- keeping order -----------------------------------------------------------------------------

    def _entry(self, branch: _Branch) -> Any:
        account = branch.account
        branch.seen = account.version
        stage = 0
        if branch.up is self._root:
            stage = branch.category if account.share < account.floor else branch.category + AFTER_GUARANTEED
        front = branch.heap[0]
        tie = front[1] if branch.leaf else front[2]
        self._counter += 1
        branch.entry = (stage, account.key, tie, self._counter, branch)
        return branch.entry

    def _front_child(self, heap: list[Any]) -> _Branch | None:
        """The child to serve next, with entries that have gone stale put right on the way."""
        closed = self._closed
        while heap:
            entry = heap[0]
            child: _Branch = entry[4]
            if child.entry is not entry:
                heappop(heap)
            elif not child.heap or child.category in closed:
                child.entry = None
                heappop(heap)
            elif child.seen != child.account.version:
                heapreplace(heap, self._entry(child))
            else:
                return child
        return None

    def _front_line(self, leaf: _Branch) -> _Line | None:
        heap = leaf.heap
        while heap:
            entry = heap[0]
            line: _Line = entry[2]
            if line.entry is entry:
                return line
            heappop(heap)
        return None

    def _leave(self, branch: _Branch) -> None:
        """Take a branch with nothing left out of the heap above; it is at the front there."""
        assert branch.up is not None
        branch.entry = None
        heappop(branch.up.heap)

    def _advance(self, state: _Line) -> None:
        """Go on to the next task of the line just answered for."""
        state.at += 1
        heap = state.leaf.heap
        if state.at < len(state.heads):
            state.entry = (state.heads[state.at].rank, state.tie(), state)
            heapreplace(heap, state.entry)
            if state.at > _TRIM and state.at * 2 > len(state.heads):
                keep = len(state.skipped)
                del state.heads[: state.at - keep]
                state.at = keep
        else:
            state.entry = None
            heappop(heap)
        self._touch(state.leaf)

    def _drop(self, state: _Line) -> None:
        """Nothing more of this line in this round."""
        state.entry = None
        state.at = len(state.heads)
        self._touch(state.leaf)

    def _touch(self, branch: _Branch) -> None:
        """Its front has changed: let its entries above be made anew when they come to the front."""
        each: _Branch | None = branch
        while each is not None:
            each.seen = -1
            each = each.up

    def _enter(self, state: _Line) -> None:
        """A line has a new front task: put it, and what stands above, in order."""
        state.entry = (state.heads[state.at].rank, state.tie(), state)
        heappush(state.leaf.heap, state.entry)
        self._push(state.leaf)

    def _push(self, branch: _Branch) -> None:
        """Make the entries of a branch, and of those above it, anew."""
        each = branch
        while each.up is not None and each.heap:
            heap = each.up.heap
            if len(heap) > _STALE + 2 * each.up.below:
                heap[:] = [entry for entry in heap if entry[4].entry is entry]
                heapify(heap)
            heappush(heap, self._entry(each))
            each = each.up

    def _charge(self, account: Account, milli: int, vector: Vector) -> None:
        account.charge(milli, vector)
        rules = self._rules
        each: Account | None = account
        while each is not None and each.parent is not None:
            each.key = rules.key(each)
            each = each.parent


def _rank(task: TaskView) -> tuple[int, int]:
    return task.rank


def by_weight(account: Account) -> int:
    """What it holds, and held, for its weight."""
    return (account.share + account.past) * account.weight
