"""The slots of a node: they are made when needed, and kept for the next script."""

from __future__ import annotations

import asyncio
from functools import cached_property
from pathlib import Path

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.sandbox import detect
from scheduler_ext.sandbox.base import Found, Level, Refused
from scheduler_ext.sandbox.detect import AnySlot


class SlotPool:
    """What a node contains scripts with: the levels that work on this machine."""

    def __init__(self, conf: SchedulerConf, *, groups: bool = True) -> None:
        """Tries nothing yet. ``groups``: use control groups where they can be made."""
        self.conf = conf
        self.groups = groups
        self._free: dict[Level, list[AnySlot]] = {}
        self._made = 0

    @cached_property
    def found(self) -> tuple[Found, ...]:
        """The levels down to the chosen one, tried on first use. Do not call it in a running event loop."""
        return asyncio.run(detect.try_all(self.conf, groups=self.groups, wanted=self.conf.sandbox))

    @cached_property
    def level(self) -> str:
        """The strongest level that works, or the one the settings ask for; the node advertises it."""
        return detect.choose(self.found, self.conf.sandbox)

    @property
    def enforced(self) -> tuple[str, ...]:
        """The limits of a tier that this level enforces on a script; advertised too."""
        return next((one.enforced for one in self.found if one.level == self.level), ())

    def probe(self) -> None:
        """Find out what this machine offers, unless known; takes a few tenths of a second."""
        assert self.level

    def take(self, root: Path, *, trusted: bool) -> AnySlot:
        """A free slot, or a new one below ``root``; ``Refused`` when an untrusted script cannot be contained."""
        level = Level(self.level)
        if trusted and self.conf.trusted_scripts == "plain":
            level = Level.PROCESS
        if not (trusted or level.contains_untrusted):
            reasons = "; ".join(
                f"{one.level}: {one.why or 'not chosen'}" for one in self.found if one.level.contains_untrusted
            )
            raise Refused(f"this node runs scripts of trusted tenants only, it has no sandbox ({reasons})")
        free = self._free.setdefault(level, [])
        if free:
            return free.pop()
        self._made += 1
        root.chmod(0o711)  # a slot's user must get through, and see nothing else
        return detect.slot(level, str(root / f"slot-{self._made}"), self.conf, groups=self.groups)

    def give_back(self, slot: AnySlot) -> None:
        self._free[slot.level].append(slot)

    def slots(self) -> list[AnySlot]:
        return [slot for slots in self._free.values() for slot in slots]

    def close(self) -> None:
        """End all free slots; busy ones end with this process."""
        for slots in self._free.values():
            while slots:
                slots.pop().close()
