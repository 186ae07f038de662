"""Gives a task as many network ports as its tier says; no two tasks of a machine hold the same port.

A port is held by an abstract Unix socket of its name. Such names belong to a network namespace, as ports do; one can
be bound once; and the kernel gives it up with the process that holds it, however that ends. So all nodes of a machine
share one range without asking anybody, and nothing is left over.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.core.work import Started

NAME = "\0slackwater-port-{}"
ENV = "SLACKWATER_PORTS"
"""The environment variable in which a script finds its ports, separated by commas."""


class NoPorts(SlackwaterError):
    """This machine has fewer free ports than the task's tier asks for."""

    code = "no_ports"


@dataclass(slots=True)
class Held:
    """Ports that are held until :meth:`release`."""

    ports: tuple[int, ...]
    _marks: list[socket.socket] = field(default_factory=list)

    def release(self) -> None:
        while self._marks:
            self._marks.pop().close()


def take(conf: SchedulerConf, wanted: int) -> Held:
    """Hold so many ports on which nobody listens now; ``NoPorts`` when there are fewer."""
    held = Held(())
    found: list[int] = []
    for port in _from_somewhere(conf.ports_from, conf.ports_count) if 0 < wanted <= conf.ports_count else ():
        mark = _mark(port)
        if mark is None:
            continue
        held._marks.append(mark)
        found.append(port)
        if len(found) == wanted:
            break
    if len(found) < wanted:
        held.release()
        few, last = len(found), conf.ports_from + conf.ports_count - 1
        raise NoPorts(f"{wanted} ports of {conf.ports_from} to {last} are wanted on this node, {few} are free")
    held.ports = tuple(sorted(found))
    return held


def _from_somewhere(first: int, count: int) -> Iterator[int]:
    """Vary the first port: connections of the task before may still be closing."""
    start = random.randrange(count) if count else 0
    return (first + (start + n) % count for n in range(count))


def _mark(port: int) -> socket.socket | None:
    """Hold one port; ``None`` when a task holds it or anybody listens on it."""
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        mark.bind(NAME.format(port))
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with contextlib.closing(socket.socket(socket.AF_INET, kind)) as probe:
                probe.bind(("", port))
    except OSError:
        mark.close()
        return None
    return mark


@dataclass(slots=True)
class _Process:
    """The ports that the running tasks of this worker child hold."""

    conf: SchedulerConf = field(default_factory=SchedulerConf)
    held: dict[tuple[str, int], Held] = field(default_factory=dict)


_process = _Process()
held = _process.held
"""The ports by claim; nearly always empty, so callers look before they call :func:`release`."""


def configure(conf: SchedulerConf) -> None:
    """Set the range of this process (the worker's side)."""
    _process.conf = conf


def of(task: Started, count: Callable[[], int]) -> tuple[int, ...]:
    """The ports of a running task, held from the first call to its end; ``count`` says how many its tier has."""
    claim = (task.task_id, task.fence)
    if claim not in held:
        held[claim] = take(_process.conf, count())
    return held[claim].ports


def release(task: Started) -> None:
    found = held.pop((task.task_id, task.fence), None)
    if found is not None:
        found.release()
