"""The ledger of one round: what each node still has room for, and which node a task goes to.

A task that is *exclusive* holds a slot of its kind and its vector in full. *Short* tasks share process
slots: each takes thousandths of one, and since only as many of them run at once as there are children, a
node holds for them their largest vector times that number.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from scheduler_ext.core.labels import RESERVED, Labels, admits
from scheduler_ext.core.resources import SIZE, add, fits, part, peak, scale, subtract
from scheduler_ext.core.types import MILLI, PER_CHILD, PROCESS, NodeView, Reason, Vector, WorkKind
from scheduler_ext.round.node_account import BatchPlace, Node, Place, Shape
from scheduler_ext.round.reservations import MAX_RESERVATIONS, allows_exclusive, allows_short, choose, use_extra

_FINE: Final = 1 << 32
"""The largest node's component is this many parts when free room is compared between nodes."""
_FILL_STEPS: Final = 8
"""Short tasks fill the smallest node by an eighth of its look-ahead before a larger one gets some."""


class Ledger:
    """All nodes of the cell with their orders: by free room for exclusive tasks, by fill for short ones."""

    __slots__ = (
        "_batch", "_below", "_capacity", "_free", "_orders", "_parts", "_releases", "_reserved", "_shapes",
        "_short", "_shuts", "_sought", "kept", "nodes", "slots_milli", "used_milli", "wants_ends",
    )  # fmt: skip

    def __init__(self, views: Sequence[NodeView], *, short: bool = True) -> None:
        """``short``: also keep the order for short tasks, which share slots."""
        self._short = short
        ordered = sorted(views, key=lambda view: view.node_id)
        self.nodes = [Node(view, index) for index, view in enumerate(ordered)]
        self._shuts = any(RESERVED in node.labels for node in self.nodes)
        """Whether a node runs only what requires its labels."""
        columns = list(zip(*[node.capacity for node in self.nodes], strict=True)) or [(0,)] * SIZE
        self._parts = tuple(_FINE // max(1, *column, 1) for column in columns)
        self._capacity = tuple(sum(column) for column in columns)
        self._free = [0] * SIZE
        self._below: dict[int, bool] = {}
        """By ceiling: whether the resources are below it; most short tasks of a round change none of them."""
        self._shapes: dict[tuple[Vector, WorkKind, int | None, Labels | None], Shape] = {}
        self._orders: dict[WorkKind, list[Place]] = {kind: [] for kind in WorkKind}
        self._batch: list[BatchPlace] = []
        self._releases = 0
        self._reserved: list[Node] = []
        self._sought = 0
        self.kept = False
        """Whether the last search passed over a node whose room is kept for another task."""
        self.wants_ends = False
        """Whether a task has waited long enough for its room to be kept, so that the ends of what runs matter."""
        self.slots_milli = dict.fromkeys(WorkKind, 0)
        self.used_milli = dict.fromkeys(WorkKind, 0)
        """Thousandths in use by kind; the kinds are counted apart, as work of one cannot use a slot of another."""
        for node in self.nodes:
            self._enter(node)
        for order in self._orders.values():
            order.sort()
        self._batch.sort()

    # -- asking ------------------------------------------------------------------------------------

    def has_room(self, kinds: Collection[WorkKind] = tuple(WorkKind)) -> bool:
        """Whether any node has a slot for any of these kinds of work."""
        return any(self.rooms(kinds))

    def rooms(self, kinds: Collection[WorkKind]) -> list[Sequence[object]]:
        """What is all empty once no node has a slot for any of these kinds; it changes as the round goes on."""
        rooms: list[Sequence[object]] = [self._orders[kind] for kind in kinds]
        return [*rooms, self._batch] if PROCESS in kinds else rooms

    def utilization_permille(self, kinds: Iterable[WorkKind] = tuple(WorkKind)) -> int:
        """The utilization of the cell in thousandths: the highest among the slots of these kinds and the resources."""
        slots = [(self.used_milli[kind], self.slots_milli[kind]) for kind in kinds]
        best = max([used * 1000 // whole for used, whole in slots if whole], default=0)
        for free, whole in zip(self._free, self._capacity, strict=True):
            if whole > 0:
                best = max(best, (whole - free) * 1000 // whole)
        return best

    def below(self, ceiling_permille: int, kind: WorkKind) -> bool:
        """Whether the utilization of a kind's slots, and of the resources, is still below a ceiling."""
        whole = self.slots_milli[kind]
        if whole and self.used_milli[kind] * 1000 >= ceiling_permille * whole:
            return False
        known = self._below.get(ceiling_permille)
        if known is None:
            known = True
            for free, whole in zip(self._free, self._capacity, strict=True):
                if whole and free * 1000 <= (1000 - ceiling_permille) * whole:
                    known = False
                    break
            self._below[ceiling_permille] = known
        return known

    def below_after(self, ceiling_permille: int, shape: Shape, ended: int) -> bool:
        """Whether it would be once so many exclusive tasks of this shape have ended."""
        whole = self.slots_milli[shape.kind]
        if whole and (self.used_milli[shape.kind] - MILLI * ended) * 1000 >= ceiling_permille * whole:
            return False
        left = zip(self._free, shape.vector, self._capacity, strict=True)
        return all(
            (free + ended * need) * 1000 > (1000 - ceiling_permille) * all_ or not all_ for free, need, all_ in left
        )

    def shape(self, vector: Vector, kind: WorkKind, handler: int | None, labels: Labels | None = None) -> Shape:
        """The shape of a task, with the reason why no node could ever take it, if so."""
        key = (vector, kind, handler, labels)
        known = self._shapes.get(key)
        if known is None:
            if kind in PER_CHILD:
                vector = part(vector, PER_CHILD[kind])
            floor = max([need * part for need, part in zip(vector, self._parts, strict=True)])
            known = self._shapes[key] = Shape(vector, kind, handler, floor)
            if labels is not None or self._shuts:
                self._bind(known, labels or Labels())
            known.impossible = self._impossible(known)
        return known

    def _bind(self, shape: Shape, labels: Labels) -> None:
        """Note the nodes that have the labels it requires, and in which order they are tried."""
        among = [node for node in self.nodes if admits(node.labels, labels.require)]
        shape.among = frozenset([node.index for node in among])
        if not labels.prefer:
            return
        liked: dict[int, list[int]] = {}
        for node in among:
            liked.setdefault(len(labels.prefer & node.labels), []).append(node.index)
        if len(liked) > 1:
            shape.choices = tuple([
                Shape(shape.vector, shape.kind, shape.handler, shape.floor, frozenset(liked[count]))
                for count in sorted(liked, reverse=True)
            ])  # fmt: skip

    def _impossible(self, shape: Shape) -> Reason | None:
        found = Reason.NO_NODE
        for node in self.nodes:
            if shape.kind in node.slots and (shape.handler is None or shape.handler in node.handlers):
                if shape.among is not None and node.index not in shape.among:
                    found = Reason.NO_LABELS if found is Reason.NO_NODE else found
                    continue
                found = Reason.NEVER_FITS
                if fits(shape.vector, node.capacity):
                    return None
        return found

    def _by_choice(self, find: Callable[[Shape], Node | None], shape: Shape, avoid: int | None) -> Node | None:
        """Return the node of the first choice that has one, other than ``avoid`` if possible."""
        second: Node | None = None
        kept = False
        for choice in shape.choices:
            node = find(choice)
            kept = kept or self.kept
            if node is not None and node.node_id != avoid:
                return node
            second = second or node
        self.kept = kept
        return second

    def find_exclusive(self, shape: Shape, avoid: int | None = None, ends_at: float | None = None) -> Node | None:
        """Return the node with the least free room that takes an exclusive task, other than ``avoid`` if possible."""
        self.kept = False
        if shape.full_at == self._releases:
            return None
        if shape.choices:
            return self._by_choice(lambda choice: self.find_exclusive(choice, avoid, ends_at), shape, avoid)
        order, nodes, handler, vector, kind, among = (
            self._orders[shape.kind],
            self.nodes,
            shape.handler,
            shape.vector,
            shape.kind,
            shape.among,
        )
        first, least = shape.needs[0] if shape.needs else (0, 0)
        second: Node | None = None
        for position in range(bisect_left(order, (shape.floor, -1)), len(order)):
            node = nodes[order[position][1]]
            if (handler is not None and handler not in node.handlers) or (
                among is not None and node.index not in among
            ):
                continue
            # A glance at one dimension spares most of the comparisons; short tasks may make way, so not with them.
            if node.free[first] < least and not node.batch_count:
                continue
            if node.takes_exclusive(kind, vector):
                if node.reserved is not None and not allows_exclusive(node, shape, ends_at):
                    self.kept = True
                    continue
                if node.node_id != avoid:
                    return node
                second = node
        if second is None and not self.kept:
            shape.full_at = self._releases
        return second

    def find_short(
        self, shape: Shape, milli: int, avoid: int | None = None, ends_at: float | None = None
    ) -> Node | None:
        """Return the node for a short task: least filled in eighths, then smallest, other than ``avoid`` if possible."""
        self.kept = False
        releases, tried = shape.full_short
        if releases == self._releases and milli >= tried:
            return None
        if shape.choices:
            return self._by_choice(lambda choice: self.find_short(choice, milli, avoid, ends_at), shape, avoid)
        nodes, handler, vector, among = self.nodes, shape.handler, shape.vector, shape.among
        second: Node | None = None
        for place in self._batch:
            if among is not None and place[2] not in among:
                continue
            node = nodes[place[2]]
            if (handler is None or handler in node.handlers) and node.takes_short(milli, vector):
                if node.reserved is not None and not allows_short(node, milli, vector, ends_at):
                    self.kept = True
                    continue
                if node.node_id != avoid:
                    return node
                second = node
        if second is None and not self.kept:
            shape.full_short = (self._releases, milli)
        return second

    @property
    def keeps_room(self) -> bool:
        """Whether a node's room is kept for a task."""
        return bool(self._reserved)

    def kept_for(self) -> frozenset[str]:
        """The tasks that a node's room is kept for."""
        return frozenset(node.reserved.task_id for node in self._reserved if node.reserved is not None)

    def reserve(self, shape: Shape, now: float, waited_s: float, patience_s: float, task_id: str = "") -> None:
        """Reserve the node on which a task of this shape can start soonest, if it has waited long enough.

        No patience is needed where only short tasks stand in its way, and ten times as much where nobody
        knows when the node's tasks end. A round looks for at most ``MAX_RESERVATIONS`` nodes.
        """
        if self._sought >= MAX_RESERVATIONS:
            return
        self._sought += 1
        chosen = choose(self.nodes, shape, now)
        if chosen is None:
            return
        node, reservation = chosen
        self.wants_ends = self.wants_ends or (waited_s >= patience_s and reservation.at != now)
        patience_s = patience_s * 10 if reservation.at is None else patience_s
        if reservation.at == now or waited_s >= patience_s:
            reservation.task_id = task_id
            node.reserved = reservation
            self._reserved.append(node)

    def forget_reservations(self) -> None:
        """Begin a new round."""
        for node in self._reserved:
            node.reserved = None
        self._reserved.clear()
        self._sought = 0

    # -- changing ----------------------------------------------------------------------------------

    def take_exclusive(self, node: Node, shape: Shape, ends_at: float | None = None, tasks: int = 1) -> None:
        """Give slots of the shape's kind, and its vector, to ``tasks`` that are expected to end at ``ends_at``.

        To more than one only as :meth:`more_exclusive` says.
        """
        if node.reserved is not None:
            use_extra(node, shape, ends_at)
        if ends_at is not None:
            node.ends += [(ends_at, shape.kind, shape.vector)] * tasks
        self._shift(node, shape, tasks)

    def more_exclusive(self, node: Node, shape: Shape) -> int:
        """How many exclusive tasks of a shape, not of processes, the node that is found for them takes before another would."""
        if node.reserved is not None:
            return 0
        room = [node.free[dimension] // need for dimension, need in shape.needs]
        return min([node.room(shape.kind), *room])

    def release_exclusive(self, node: Node, shape: Shape, ends_at: float | None = None) -> None:
        """Take them back when the task has ended."""
        if ends_at is not None:
            node.ends.remove((ends_at, shape.kind, shape.vector))
        self._releases += 1
        self._shift(node, shape, -1)

    def _shift(self, node: Node, shape: Shape, tasks: int) -> None:
        """Count so many exclusive tasks of this shape more; with -1 one less."""
        kind, vector = shape.kind, shape.vector
        if tasks > 1:
            vector = scale(vector, tasks)
        node.counts[kind] += tasks
        if kind is PROCESS:
            node.count_children()
        self.used_milli[kind] += tasks * MILLI
        node.exclusive_used = add(node.exclusive_used, vector) if tasks > 0 else subtract(node.exclusive_used, vector)
        if node.batch_count:
            self._changed(node)
            return
        node.free = subtract(node.free, vector) if tasks > 0 else add(node.free, vector)
        self._below.clear()
        free = self._free
        for dimension, need in shape.needs:
            free[dimension] -= tasks * need
        self._place(node)

    def take_short(self, node: Node, shape: Shape, milli: int) -> None:
        """Add a short task to the node's batches."""
        self.used_milli[PROCESS] += milli
        node.batch_milli += milli
        node.batch_count += 1
        peaked, vector = node.batch_peak, shape.vector
        known = node.batch_count > node.children and (vector == peaked or fits(vector, peaked))
        if not known:
            node.batch_peak = peak(peaked, vector)
            self._changed(node)
        elif node.batch_milli > node.batch_stays:
            self._place(node)

    def more_short(self, node: Node, shape: Shape, milli: int) -> int:
        """How many short tasks of a shape the node that is found for them takes before anything but its counts changes."""
        if node.reserved is not None or node.batch_count < node.children or not fits(shape.vector, node.batch_peak):
            return 0
        return (min(node.batch_stays, node.children * MILLI) - node.batch_milli) // milli

    def take_more_short(self, node: Node, milli: int, tasks: int) -> None:
        """Add so many of them to the node's batches."""
        self.used_milli[PROCESS] += milli * tasks
        node.batch_milli += milli * tasks
        node.batch_count += tasks

    def below_for(self, ceiling_permille: int, shape: Shape, milli: int) -> int:
        """How many tasks may start, one after the other, each while it is below a ceiling.

        ``milli``: of short tasks that take slots alone; 0 for those that take a whole one, and their vector.
        """
        if not self.below(ceiling_permille, shape.kind):
            return 0
        left = ceiling_permille * self.slots_milli[shape.kind] - self.used_milli[shape.kind] * 1000
        most = -(-left // (1000 * (milli or MILLI)))
        if milli:
            return most
        for dimension, need in shape.needs:
            if whole := self._capacity[dimension]:
                left = self._free[dimension] * 1000 - (1000 - ceiling_permille) * whole
                most = min(most, -(-left // (1000 * need)))
        return most

    def _enter(self, node: Node) -> None:
        node.size = max([part * whole for part, whole in zip(self._parts, node.capacity, strict=True)])
        for dimension, free in enumerate(node.free):
            self._free[dimension] += free
        self.used_milli[PROCESS] += node.batch_milli
        key = (self._weight(node), node.index)
        for kind, slots in node.slots.items():
            self.slots_milli[kind] += slots * MILLI
            self.used_milli[kind] += node.counts[kind] * MILLI
            if node.room(kind) > 0:
                node.place[kind] = key
                self._orders[kind].append(key)
        node.batch_place = self._batch_key(node) if self._short else None
        if node.batch_place is not None:
            self._batch.append(node.batch_place)

    def _changed(self, node: Node) -> None:
        before = node.free
        node.weigh()
        after = node.free
        if after != before:
            self._below.clear()
            free = self._free
            for dimension in range(SIZE):
                free[dimension] += after[dimension] - before[dimension]
        self._place(node)

    def _weight(self, node: Node) -> int:
        """Free room in its largest dimension, in parts of the largest node."""
        f0, f1, f2, f3, f4, f5 = node.free
        p0, p1, p2, p3, p4, p5 = self._parts
        weight: int = max(f0 * p0, f1 * p1, f2 * p2, f3 * p3, f4 * p4, f5 * p5)
        return weight

    def _place(self, node: Node) -> None:
        """Put the node where it now belongs in the order of each kind."""
        key: Place | None = None
        places, counts = node.place, node.counts
        for kind, slots in node.slots.items():
            room = slots - counts[kind]
            if room > 0 and node.batch_milli and kind is PROCESS:
                room = node.room(kind)
            if room > 0 and key is None:
                key = (self._weight(node), node.index)
            now = key if room > 0 else None
            before = places.get(kind)
            if now == before:
                continue
            order = self._orders[kind]
            if before is not None:
                del order[bisect_left(order, before)]
                del places[kind]
            if now is not None:
                insort(order, now)
                places[kind] = now
        if self._short:
            self._place_batch(node)

    def _batch_key(self, node: Node) -> BatchPlace | None:
        room, milli = node.children * MILLI, node.batch_milli
        if milli >= room:
            return None
        step = milli * _FILL_STEPS // room
        node.batch_stays = min(-(-milli // MILLI) * MILLI, ((step + 1) * room - 1) // _FILL_STEPS)
        return (step, node.size, node.index)

    def _place_batch(self, node: Node) -> None:
        now, before = self._batch_key(node), node.batch_place
        if now == before:
            return
        if before is not None:
            del self._batch[bisect_left(self._batch, before)]
        if now is not None:
            insort(self._batch, now)
        node.batch_place = now
