"""Time and processor time of a step: of this process, of its session in PostgreSQL, and of Redis."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.lab.benchmarks.account import cpu_clock, name_of


@dataclass(slots=True)
class Spent:
    """What a step has taken so far, in seconds."""

    wall: list[float] = field(default_factory=list)
    python: float = 0.0
    postgres: float = 0.0
    redis: float = 0.0
    units: int = 0

    def line(self, step: str, batch: int) -> dict[str, object]:
        """A result: microseconds a unit."""
        per = 1e6 / max(1, self.units)
        return {
            "step": step, "batch": batch, "us": round(sum(self.wall) * per, 1),
            "python_us": round(self.python * per, 1), "postgres_us": round(self.postgres * per, 1),
            "redis_us": round(self.redis * per, 1),
        }  # fmt: skip


class Meter:
    """Adds up what named steps take."""

    def __init__(self, *backends: int, redis: int = 0) -> None:
        """``backends``: processes of this process's sessions; ``redis``: the server's. 0: none on this machine."""
        self.backends = [cpu_clock(pid) for pid in backends if name_of(pid).startswith("postgres")]
        self.redis = cpu_clock(redis) if redis and name_of(redis) else None
        self.spent: defaultdict[str, Spent] = defaultdict(Spent)

    @contextmanager
    def step(self, name: str, units: int) -> Iterator[None]:
        """Measure the body as one go at ``units`` of ``name``."""
        postgres, redis, python, began = (
            self._postgres(),
            self._redis(),
            time.process_time(),
            time.perf_counter(),
        )
        yield
        over = time.perf_counter()
        found = self.spent[name]
        found.python += time.process_time() - python
        found.wall.append(over - began)
        found.postgres += self._postgres() - postgres
        found.redis += self._redis() - redis
        found.units += units

    def _postgres(self) -> float:
        return sum(map(time.clock_gettime, self.backends))

    def _redis(self) -> float:
        return time.clock_gettime(self.redis) if self.redis is not None else 0.0
