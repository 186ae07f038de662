"""The registry of probes, and what became of each."""

from __future__ import annotations

import importlib
import pkgutil
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.lab.attack.ground import Ground

Run = Callable[..., str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One attack."""

    door: str
    name: str
    attack: str
    """What the attacker does, in a sentence."""
    expected: str
    run: Run
    long: bool
    ground: bool
    """It needs the running platform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What became of one."""

    probe: Probe
    got: str
    seconds: float

    @property
    def held(self) -> bool:
        """Whether it went as it must."""
        return self.got == self.probe.expected


_known: dict[tuple[str, str], Probe] = {}


def add(door: str, name: str, attack: str, expected: str, run: Run, *, long: bool = False, ground: bool = True) -> None:
    """Register a probe; ``ValueError`` for a name that its door has already."""
    if (door, name) in _known:
        raise ValueError(f"there are two probes {door}: {name}")
    _known[door, name] = Probe(
        door=door, name=name, attack=attack, expected=expected, run=run, long=long, ground=ground
    )


def probe(door: str, *, expected: str, long: bool = False, ground: bool = True) -> Callable[[Run], Run]:
    """Register a function as a probe: its name and the first line of its docstring say what it does."""

    def register(run: Run) -> Run:
        attack = (run.__doc__ or "").strip().splitlines()[0]
        add(door, run.__name__.replace("_", " "), attack, expected, run, long=long, ground=ground)
        return run

    return register


def load(doors: Sequence[str] = (), *, short: bool = False) -> list[Probe]:
    """All probes, or those of some doors, by door and name."""
    from tests.lab.attack import doors as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    chosen = [one for one in _known.values() if (not doors or one.door in doors) and not (short and one.long)]
    return sorted(chosen, key=lambda one: (one.door, one.name))


def attempt(one: Probe, ground: Ground | None) -> Score:
    """Run a probe; a part of the platform that ended meanwhile is what it got."""
    began = time.monotonic()
    arguments: tuple[Any, ...] = (ground,) if one.ground else ()
    try:
        got = one.run(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, the probe did not get what it must
        where = traceback.extract_tb(error.__traceback__)[-1]
        got = f"{type(error).__name__}: {error} ({where.name}:{where.lineno})"
    fallen = ground.fallen() if ground is not None else []
    if fallen:
        got = "; ".join(fallen)
    return Score(probe=one, got=got, seconds=time.monotonic() - began)
