"""The chooser behind every share policy: a tree of accounts, served by the smallest key at each level.

Inside every category stands the same tree (tenants, or pools with tenants in them); its accounts span the
categories. What is past its latest start is one more category, before all others. A category comes before the next
only for those at the top who have not got their fair share: their weight over the weights of all who have work.
Beyond it whoever holds least is next, whatever the category; and of those who hold alike, whoever was served least
lately.

Entries wait in heaps and are brought up to date only when they come to the front, so a pick or an answer costs the
logarithm of the number of lines. The simulator keeps one such tree for a whole run: it offers tasks as they arrive and
gives back what ended; a round of the dispatcher uses it once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify
from itertools import count
from math import lcm
from operator import attrgetter
from typing import Any, Final

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.resources import filled, scale, subtract, zero
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import (
    CLIENT,
    MILLI,
    NO_SLOTS,
    PROCESS,
    Behind,
    LineView,
    Reason,
    Slots,
    Snapshot,
    TaskView,
    TenantView,
    Vector,
    WorkKind,
    add_slots,
)
from scheduler_ext.policies.accounts import Account, Measure, Stand
from scheduler_ext.policies.base import CATEGORY_REASONS, LINE_REASONS, TENANT_REASONS, Chooser
from scheduler_ext.policies.holdings import clients, count_held, held_in_pools, member_name, need_of, taken_by
from scheduler_ext.policies.tree_nodes import Branch, Clock, Line, Place, place_of

Path = tuple[str, ...]
SHORT_MEMORY_S: Final = 300
"""The time constant with which recent service is forgotten, where past use does not count as held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a policy says of one account."""

    weight: int = 1
    floor: int = 0
    """Guaranteed share, in the measure's parts."""
    limit: int | None = None
    kept: int = 0
    """How much of the floor stays free for the account while it is idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A share policy as the tree sees it. By default: equal shares by weight, counted in slots."""

    memory_s: int = 0
    """Past use counts as held for this long; 0: only what is in flight counts."""

    def __post_init__(self) -> None:
        if self.memory_s < 0:
            raise ConfigurationError("must not be negative", field="memory_s")

    def start(self, snapshot: Snapshot) -> TreeChooser:
        """Begin a round over ``snapshot``."""
        return TreeChooser(snapshot, self)

    @property
    def vectors(self) -> bool:
        """Whether shares count resources too, or slots alone."""
        return False

    def path(self, line: LineView) -> Path:
        """Names of the accounts a line belongs to, from the top: its pool, if any, and in it the tenant if it is told
        apart."""
        pool = pool_path(line)
        return (*pool, f"tenant {line.tenant_id}") if self.owned(line) else pool

    def owned(self, line: LineView) -> bool:
        """Whether the last account of the line's path is its tenant's own; else several tenants share it, by rank."""
        del line
        return True

    def terms(self, path: Path, tenant: TenantView | None, above: Account, measure: Measure) -> Terms:
        """Weight, floor and maximum of the account at ``path``; ``tenant`` is set for a tenant's own account.

        A client with several tenants counts as one that has the best of their plans. What a plan guarantees is a share
        of the cell: inside a pool only the plan's weight counts.
        """
        if tenant is None:
            return Terms()
        top = above.parent is None
        bounded = path[-1].startswith(CLIENT) and tenant.maximum_permille < 1000
        return Terms(
            weight=tenant.weight,
            floor=measure.permille(tenant.guaranteed_permille) if top else 0,
            limit=measure.permille(tenant.maximum_permille) if bounded else None,
        )

    def key(self, account: Account) -> Any:
        """Place among siblings, smaller first; keys of one level must compare with each other.

        What it holds, and held, for its weight.
        """
        return (account.share + account.past) * account.weight

    def kept(self) -> Iterable[Path]:
        """The accounts that keep part of their guaranteed share free while idle."""
        return ()


class TreeChooser(Chooser):
    """One round of a share policy."""

    def __init__(self, snapshot: Snapshot, rules: Rules) -> None:
        self._rules = rules
        self._measure = Measure(snapshot, vectors=rules.vectors)
        self._top = Account("", None, self._measure)
        self._accounts: dict[Path, Account] = {(): self._top}
        self._branches: dict[tuple[Hashable, int, Path], Branch] = {}
        self._roots: dict[Hashable, Branch] = {}
        self._clock: Clock = count(1).__next__
        self._lines: dict[int, Line] = {}
        self._of_tenant: dict[int, list[Line]] = {}
        self._closed: set[int] = set()
        self._plain_key = type(rules).key is Rules.key
        """Whether the policy keys accounts as they are by default: spared the call, which is one for each charge."""
        self._kinds: dict[int, set[WorkKind]] = {}
        """By category at its ceiling: the kinds of its tasks that may be below it."""
        self._full: set[Hashable] = set()
        """Needs for which no node has room any more in this round."""
        self._grown = 0.0 if rules.memory_s else SHORT_MEMORY_S / max(1, self._measure.whole)
        """What a share of one, held until now for ever, counts as served. It stays through a round, which is one moment.

        Where past use counts as held, the key has it, and nobody is served less.
        """
        self._bounded = False
        """Whether any account has a maximum, or keeps part of its share free while idle."""
        paths = {line.line_id: self._path(line) for line in snapshot.lines}
        self._split = {paths[line.line_id][:-1] for line in snapshot.lines if line.workflow and rules.owned(line)}
        """The accounts of tenants with workflows that have a share of their own."""
        inner = {path[:length] for path in set(paths.values()) for length in range(1, len(path))}
        # A pool that has pools in it keeps its own lines in an account beside them.
        self._paths = {number: (*path, "") if path in inner else path for number, path in paths.items()}
        apart = held_in_pools(snapshot)
        self._clients = clients(snapshot)
        self._open_accounts(snapshot, apart)
        for line in sorted(snapshot.lines, key=attrgetter("precedence")):
            self._add_line(line)
        self._floors = any(account.floor for account in self._accounts.values())
        self._due = self._fair = 0
        """The weights of top-level accounts with work; and the share, times its multiplier, that is fair to each."""
        self._count_due(snapshot, apart)
        self._order_all()

    # -- the protocol ------------------------------------------------------------------------------

    def pick(self) -> tuple[LineView, TaskView] | None:
        roots = self._roots.values()
        if len(roots) == 1:
            (root,) = roots
            line = self._descend(root)
        else:
            line = self._first(map(self._descend, roots))
        return (line.view, line.heads[line.at]) if line is not None else None

    def accept(self, line: LineView, task: TaskView, milli: int = MILLI) -> None:
        state, kind = self._lines[line.line_id], task.kind
        self._charge(state.leaf.account, kind, milli, line.vector if kind is PROCESS else taken_by(line, kind))
        state.advance()

    def following(self, line: LineView) -> Sequence[TaskView]:
        state, others = self._lines[line.line_id], self._roots.values()
        alone = state.leaf.stands_alone(others) and not self._bounded
        return state.heads[state.at :] if alone else ()

    def accept_next(self, line: LineView, task: TaskView, milli: int, tasks: int) -> None:
        state, kind = self._lines[line.line_id], task.kind
        self._charge(state.leaf.account, kind, milli * tasks, scale(taken_by(line, kind), tasks))
        state.advance(tasks)

    def reject(self, line: LineView, task: TaskView, reason: Reason) -> None:
        """Take note: the task just picked stays, and with it all that the reason covers."""
        state = self._lines[line.line_id]
        if reason is Reason.NO_SLOT or reason is Reason.RESERVED:
            self._full.add(need_of(line, task))
        if reason in CATEGORY_REASONS and self._closes(line.precedence, task.kind):
            self._closed.add(line.precedence)
        elif reason in LINE_REASONS:
            self._drop(state)
        elif reason in TENANT_REASONS and reason is not Reason.HARD_SHARE:
            for other in self._of_tenant[line.tenant_id]:
                self._drop(other)
        else:
            self._pass_over(state, task)

    def _closes(self, precedence: int, kind: WorkKind) -> bool:
        """Whether nothing of a category, or nothing that is late, can start any more, now that nothing of a kind can."""
        if precedence not in self._kinds:
            alike = (state for state in self._lines.values() if state.view.precedence == precedence)
            self._kinds[precedence] = {task.kind for state in alike for task in state.heads}
        self._kinds[precedence].discard(kind)
        return not self._kinds[precedence]

    def take(self, line: LineView, task: TaskView) -> None:
        state = self._lines[line.line_id]
        self._charge(state.leaf.account, task.kind, MILLI, taken_by(line, task.kind))
        self._remove(state, next(place for place, each in enumerate(state.heads) if each is task))

    def account_at_top(self, line: LineView) -> str:
        return self._lines[line.line_id].top.name

    def stands(self) -> dict[Path, Stand]:
        """How each account stands, by its path."""
        lines = [state.view for state in self._lines.values() if state.heads and not state.view.paused]
        waits = {self._paths[view.line_id] for view in lines if view.tenant_id not in self._paused}
        waits |= {path[:-1] for path in waits if path[:-1] in self._split}
        return {path: Stand(account.share / max(1, self._measure.whole), account.turns, path in waits)
                for path, account in self._accounts.items()}  # fmt: skip

    def refusal(self, line: LineView, task: TaskView, milli: int) -> Reason | None:
        """``HARD_SHARE`` if the task would take its account, or one above, beyond its maximum."""
        account, kind = self._lines[line.line_id].leaf.account, task.kind
        if not self._bounded or account.allows(kind, milli, taken_by(line, kind)):
            return None
        return Reason.HARD_SHARE

    def _first(self, fronts: Iterable[Line | None]) -> Line | None:
        """Which of the lines in front (at most one per category, in category order) comes first.

        One that is known to find no room comes at once: it is refused, and hides nobody behind it.
        """
        due = best = None
        full = self._full
        for line in fronts:
            if line is None:
                continue
            top = line.top
            if full and need_of(line.view, line.heads[line.at]) in full:
                return line
            if top.share < top.floor:
                return line
            if due is None and self._is_due(line, top):
                if not self._floors:
                    return line
                due = line
            if best is None or (top.key, top.tie) < (best.top.key, best.top.tie):
                best = line
        return due or best

    def _is_due(self, line: Line, top: Account) -> bool:
        """Whether its tenant, or the top-level pool, stays within its fair share when this line is served."""
        fair, weight = self._fair, top.weight
        if top.share * weight >= fair:
            return False
        kind = line.heads[line.at].kind
        vector = taken_by(line.view, kind)
        if line.alone[0] is not kind:
            line.alone = (kind, self._measure.share({kind: MILLI}, vector))
        return (top.share + line.alone[1]) * weight <= fair or top.share_with(kind, MILLI, vector) * weight <= fair

    def _remove(self, state: Line, place: int) -> None:
        """Take the task at a place of its line out of it."""
        del state.heads[place]
        if place > state.at:
            return
        if state.at < len(state.heads):
            self._enter(state)
        else:
            state.drop()

    def _enter(self, state: Line) -> None:
        """Put a line with a new front task, and the accounts above it, in order."""
        state.leaf.enter(state)
        each: Branch | None = state.leaf
        while each is not None:
            each.push(self._clock)
            each = each.up

    # -- steps a run refines -----------------------------------------------------------------------

    def _root_of(self, view: LineView) -> Hashable:
        """Which tree a line stands in; a round has one for each category."""
        return view.precedence

    def _drop(self, state: Line) -> None:
        state.drop()

    def _pass_over(self, state: Line, task: TaskView) -> None:
        del task
        state.skip()

    def _descend(self, root: Branch) -> Line | None:
        """The line to serve next in one tree."""
        branch, closed, clock = root, self._closed, self._clock
        while True:
            if branch.leaf:
                line = branch.front_line()
                if line is not None:
                    return line
            else:
                child = branch.front_child(closed, clock)
                if child is not None:
                    branch = child
                    continue
            if branch.up is None:
                return None
            branch.leave()
            branch = root

    # -- building ----------------------------------------------------------------------------------

    def _path(self, line: LineView) -> Path:
        """Where a line stands: as the policy says, and there in its workflow if that has a share of its own."""
        path = self._rules.path(line)
        return (*path, f"workflow {line.workflow}") if line.workflow and self._rules.owned(line) else path

    def _open_accounts(self, snapshot: Snapshot, apart: dict[int, tuple[Slots, Vector]]) -> None:
        """Open an account for each path and count what is in flight on it."""
        for path in self._rules.kept():
            self._account(path, None)
        for name in sorted({*snapshot.pools, *self._clients}):
            account, pool = self._account(tuple(name.split("/")), None), snapshot.pools.get(name)
            if pool is not None:
                account.charge(pool.used_slots_milli, pool.used)
            self._remember(account, snapshot.past_use.get(f"pool {name}", 0.0), above=True)
        counted: set[tuple[Path, int]] = set()
        for line in snapshot.lines:
            path, tenant = self._paths[line.line_id], line.tenant_id
            own = path[:-1] if path[:-1] in self._split else path
            if (own, tenant) not in counted:
                counted.add((own, tenant))
                self._open_own(own, line, snapshot, apart)
            if own is not path and (path, tenant) not in counted:
                counted.add((path, tenant))
                self._open_member(path, line, snapshot)
        if self._top.counts:
            self._count_others(snapshot, apart)
        self._weigh()

    def _open_own(self, path: Path, line: LineView, snapshot: Snapshot, apart: dict[int, tuple[Slots, Vector]]) -> None:
        """Open the account of a line's tenant, or the one that it shares in a pool, and count what is in flight on it."""
        tenant = snapshot.tenants.get(line.tenant_id) or TenantView(tenant_id=line.tenant_id)
        owned, within = self._rules.owned(line), snapshot.pools.get(line.pool)
        account = self._account(path, tenant if owned else None)
        if within is None or owned:
            count_held(account, tenant, within, apart)
            above = within is None and line.pool not in self._clients
            self._remember(account, snapshot.past_use.get(f"tenant {line.tenant_id}", 0.0), above=above)

    def _open_member(self, path: Path, line: LineView, snapshot: Snapshot) -> None:
        """Open the account of a workflow below its tenant's, or of all else there, and count what is in flight on it."""
        account = self._account(path, None)
        account.turns = max(1, line.weight)
        held = snapshot.workflows.get(line.pool, {}).get(line.tenant_id, {}).get(line.workflow)
        if held is not None:
            account.hold_all(*held)
        self._remember(account, snapshot.past_use.get(member_name(line.tenant_id, line.workflow), 0.0), above=False)

    def _count_others(self, snapshot: Snapshot, apart: dict[int, tuple[Slots, Vector]]) -> None:
        """Count what tenants without waiting work hold, at the top alone."""
        waiting = {line.tenant_id for line in snapshot.lines}
        for tenant_id, tenant in snapshot.tenants.items():
            if tenant_id not in waiting and tenant.used_slots_milli:
                slots, vector = apart.get(tenant_id, (NO_SLOTS, zero()))
                self._top.hold_all(add_slots(tenant.used_slots_milli, slots, -1), subtract(filled(tenant.used), vector))

    def _remember(self, account: Account, past_use: float, *, above: bool) -> None:
        """Count past use, as held or as a tie-break; ``above``: on the accounts above as well."""
        if not past_use:
            return
        memory_s = self._rules.memory_s
        past = int(past_use * self._measure.whole / memory_s) if memory_s else 0
        each: Account | None = account
        while each is not None and each.parent is not None:
            each.past += past
            each.served += 0.0 if memory_s else past_use
            each = each.parent if above else None

    def _account(self, path: Path, tenant: TenantView | None) -> Account:
        known = self._accounts.get(path)
        if known is not None:
            return known
        above = self._account(path[:-1], None)
        account = self._accounts[path] = Account(path[-1], above, self._measure)
        terms = self._rules.terms(path, tenant or self._clients.get(path[-1]), above, self._measure)
        account.turns, account.floor, account.limit = max(1, terms.weight), terms.floor, terms.limit
        if terms.kept:
            account.keep(terms.kept)
        self._bounded = self._bounded or bool(terms.kept) or terms.limit is not None
        return account

    def _weigh(self) -> None:
        """Turn weights into multipliers, so that no key is ever divided."""
        common = lcm(*{account.turns for account in self._accounts.values()})
        self._common = common if common.bit_length() <= 128 else 1 << 128
        for account in self._accounts.values():
            account.weight = self._common // account.turns
            account.key = self._rules.key(account)
            account.served_at = self._grown
            account.tie = (account.served - account.share * self._grown) / account.turns

    def _count_due(self, snapshot: Snapshot, apart: dict[int, tuple[Slots, Vector]]) -> None:
        """Note who at the top is due a share of the cell: those with unpaused work waiting or something held."""
        waiting = {line.tenant_id for line in snapshot.lines}
        self._paused = {number for number, tenant in snapshot.tenants.items() if tenant.paused}
        for state in self._lines.values():
            if not state.view.paused and state.view.tenant_id not in self._paused:
                state.top.waits += len(state.heads)
        due = sum(
            each.turns for each in self._accounts.values() if each.parent is self._top and (each.waits or each.share)
        )
        for tenant_id, tenant in snapshot.tenants.items():
            if tenant.used_slots_milli and tenant_id not in waiting:
                slots = add_slots(tenant.used_slots_milli, apart.get(tenant_id, (NO_SLOTS, ()))[0], -1)
                due += tenant.weight if any(slots.values()) else 0
        due += sum(max(1, each.weight) * each.tenants for each in snapshot.behind if self._stands_alone(each))
        self._share_out(due)

    def _stands_alone(self, behind: Behind) -> bool:
        """Whether such tenants have accounts of their own at the top; else it is their pool's, which is there."""
        line = LineView(
            line_id=0, tenant_id=0, category=Category.URGENT, tier_id=0, vector=(), heads=(), pool=behind.pool
        )
        return self._rules.path(line)[:1] == ("tenant 0",)

    def _share_out(self, due: int) -> None:
        """Add this weight to the weights that have work."""
        self._due = due
        self._fair = self._measure.whole * self._common // max(1, due)

    def _add_line(self, view: LineView) -> None:
        leaf = self._branch(self._root_of(view), view.precedence, self._paths[view.line_id], leaf=True)
        state = self._lines[view.line_id] = Line(view, leaf)
        self._of_tenant.setdefault(view.tenant_id, []).append(state)
        leaf.below += 1
        if state.heads:
            leaf.heap.append(state.make_entry())
            self._waits(leaf.account, place_of(state.heads[0], view.line_id))

    @staticmethod
    def _waits(account: Account, place: Place) -> None:
        """Note a task with this place in a leaf: the accounts above go by the first of theirs."""
        above = account.parent
        while above is not None and place < above.place:
            above.place = place
            above = above.parent

    def _branch(self, tree: Hashable, category: int, path: Path, *, leaf: bool = False) -> Branch:
        if not path:
            if tree not in self._roots:
                self._roots[tree] = Branch(self._top, None, 0, leaf=False)
            return self._roots[tree]
        known = self._branches.get((tree, category, path))
        if known is None:
            up = self._branch(tree, category, path[:-1])
            up.below += 1
            known = Branch(self._accounts[path], up, category, leaf=leaf)
            self._branches[tree, category, path] = known
        return known

    def _order_all(self) -> None:
        """Leaves first, so that each entry above is made from a heap in order."""
        for _, branch in sorted(self._branches.items(), key=lambda item: -len(item[0][2])):
            heapify(branch.heap)
            assert branch.up is not None
            entry = branch.make_entry(self._clock) if branch.heap else None
            if entry is not None:
                branch.up.heap.append(entry)
        for root in self._roots.values():
            heapify(root.heap)

    def _charge(self, account: Account, kind: WorkKind, milli: int, vector: Vector) -> None:
        """Let an account, and those above it, hold so much more."""
        growth, plain, each, above = self._grown, self._plain_key, account, account.parent
        while above is not None:
            each.take(kind, milli, vector)
            share = each.share
            each.tie = (each.served - share * growth) / each.turns
            each.key = (share + each.past) * each.weight if plain else self._rules.key(each)
            each, above = above, above.parent
        if each.counts:
            each.take(kind, milli, vector)


def pool_path(line: LineView) -> Path:
    """The path of a line's pool; empty when it has none."""
    return tuple(line.pool.split("/")) if line.pool else ()
