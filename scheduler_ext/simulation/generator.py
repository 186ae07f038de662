"""Made-up work from a YAML file: tenants, arrival processes, run times, day and night.

::

    duration_s: 3600
    cell: {nodes: 2, slots: 8}
    tenants:
      - name: shop
        weight: 2
        category: urgent
        arrivals: {process: poisson, per_s: 3, day: {period_s: 86400, amplitude: 0.8}}
        run_s: {distribution: lognormal, mean: 0.5, sigma: 1.0}
        vector: {cpu_milli: 500}
        tolerance_s: 2
      - name: archive
        arrivals: {process: fixed, every_s: 0.1, count: 350, start_s: 10}
        run_s: {distribution: constant, value: 0.2}
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from scheduler_ext.core import resources
from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.states import Category
from scheduler_ext.simulation.model import ONE_CPU, Cell, Job, Trace

MICRO: Final = 1_000_000
_TENANT_KEYS: Final = frozenset(
    (
        "name",
        "weight",
        "category",
        "priority",
        "pool",
        "tolerance_s",
        "arrivals",
        "run_s",
        "vector",
        "expected",
    )
)


def read_yaml(path: Path, *, seed: int = 0) -> tuple[Trace, Cell]:
    """Generate a trace from a YAML file; the same seed gives the same trace."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise InvalidInput(f"is not YAML: {error}", field="trace") from error
    return generate(document, name=path.stem, seed=seed)


def generate(document: Any, *, name: str = "generated", seed: int = 0) -> tuple[Trace, Cell]:
    """Generate a trace from the document's mapping; errors name the field."""
    top = _mapping(document, "trace", ("duration_s", "cell", "tenants"))
    duration = _number(top, "duration_s", "trace", default=math.inf, least=0)
    tenants = top.get("tenants")
    if not isinstance(tenants, list) or not tenants:
        raise InvalidInput("must be a list of tenants", field="tenants")
    jobs: list[Job] = []
    names: dict[int, str] = {}
    weights: dict[int, int] = {}
    for index, entry in enumerate(tenants):
        where = f"tenants[{index}]"
        tenant = _mapping(entry, where, tuple(sorted(_TENANT_KEYS)))
        label = str(tenant.get("name", index))
        number = next((known for known, other in names.items() if other == label), len(names))
        names[number] = label
        weights[number] = int(_number(tenant, "weight", where, default=1, least=1))
        jobs.extend(_jobs(tenant, number, duration, random.Random(f"{seed}/{index}"), where))
    jobs.sort(key=lambda job: (job.arrived_us, job.tenant))
    for index, job in enumerate(jobs):
        job.index = index
        job.task_id = str(index)
    return Trace(name=name, jobs=jobs, tenants=names, weights=weights), _cell(top.get("cell") or {})


def _jobs(
    tenant: Mapping[str, Any], number: int, duration: float, rng: random.Random, where: str
) -> Iterator[Job]:
    draw = _distribution(tenant.get("run_s"), f"{where}.run_s")
    vector = ONE_CPU
    if "vector" in tenant:
        vector = resources.from_mapping(
            _mapping(tenant["vector"], f"{where}.vector", resources.DIMENSIONS), field=f"{where}.vector"
        )
    tolerance = tenant.get("tolerance_s")
    for arrival in _arrivals(tenant.get("arrivals"), duration, rng, f"{where}.arrivals"):
        run = max(1, int(draw(rng) * MICRO))
        yield Job(
            0,
            int(arrival * MICRO),
            run,
            tenant=number,
            vector=vector,
            category=_category(tenant.get("category", "delayable"), where),
            priority=int(_number(tenant, "priority", where, default=0, least=-1000)),
            expected_us=run if tenant.get("expected", True) else None,
            tolerance_us=None if tolerance is None else int(float(tolerance) * MICRO),
            pool=str(tenant.get("pool", "")),
        )


def _arrivals(value: Any, duration: float, rng: random.Random, where: str) -> Iterator[float]:
    given = _mapping(value, where, ("process", "per_s", "every_s", "count", "start_s", "day"))
    process = given.get("process", "poisson")
    count = _number(given, "count", where, default=math.inf, least=0)
    now = _number(given, "start_s", where, default=0, least=0)
    if count == math.inf and duration == math.inf:
        raise InvalidInput("needs a count, or the trace a duration_s", field=where)
    if process == "fixed":
        every = _number(given, "every_s", where, least=0)
        if every == 0 and count == math.inf:
            raise InvalidInput("must be greater than 0 without a count", field=f"{where}.every_s")
        produced = 0
        while produced < count and now <= duration:
            yield now
            produced += 1
            now += every
    elif process == "poisson":
        yield from _poisson(given, now, duration, count, rng, where)
    else:
        raise InvalidInput("must be poisson or fixed", field=f"{where}.process")


def _poisson(
    given: Mapping[str, Any], now: float, duration: float, count: float, rng: random.Random, where: str
) -> Iterator[float]:
    """A Poisson process; with ``day`` its rate swings like a sine, thinned from the highest rate."""
    rate = _number(given, "per_s", where, least=0)
    if rate == 0:
        return
    day = _mapping(given.get("day") or {}, f"{where}.day", ("period_s", "amplitude"))
    amplitude = _number(day, "amplitude", f"{where}.day", default=0, least=0)
    period = _number(day, "period_s", f"{where}.day", default=86_400, least=1)
    if amplitude > 1:
        raise InvalidInput("must be from 0 to 1", field=f"{where}.day.amplitude")
    produced = 0
    while produced < count:
        now += rng.expovariate(rate * (1 + amplitude))
        if now > duration:
            return
        if rng.random() * (1 + amplitude) <= 1 + amplitude * math.sin(2 * math.pi * now / period):
            produced += 1
            yield now


def _distribution(value: Any, where: str) -> Callable[[random.Random], float]:
    """A function that draws run times in seconds."""
    keys = ("distribution", "value", "mean", "sigma", "low", "high", "alpha", "values")
    given = _mapping(value, where, keys)
    kind = given.get("distribution", "constant")
    if kind == "choice":
        values = given.get("values")
        if not isinstance(values, list) or not values:
            raise InvalidInput("must be a list of seconds", field=f"{where}.values")
        return lambda rng: float(rng.choice(values))
    if kind == "constant":
        constant = _number(given, "value", where, least=0)
        return lambda _: constant
    if kind == "uniform":
        low, high = _number(given, "low", where, least=0), _number(given, "high", where, least=0)
        return lambda rng: rng.uniform(low, high)
    mean = _number(given, "mean", where, least=0)
    if kind == "exponential":
        return lambda rng: rng.expovariate(1 / mean) if mean else 0.0
    if kind == "lognormal":
        sigma = _number(given, "sigma", where, default=1, least=0)
        mu = math.log(mean) - sigma * sigma / 2 if mean else -math.inf
        return lambda rng: rng.lognormvariate(mu, sigma) if mean else 0.0
    if kind == "pareto":
        alpha = _number(given, "alpha", where, default=2, least=1.01)
        return lambda rng: mean * (alpha - 1) / alpha * rng.paretovariate(alpha)
    known = "constant, uniform, exponential, lognormal, pareto, choice"
    raise InvalidInput(f"must be one of {known}", field=f"{where}.distribution")


def _cell(value: Any) -> Cell:
    given = _mapping(value, "cell", ("nodes", "slots", "capacity"))
    capacity = given.get("capacity")
    return Cell(
        nodes=int(_number(given, "nodes", "cell", default=1, least=1)),
        slots=int(_number(given, "slots", "cell", default=4, least=1)),
        capacity=None
        if capacity is None
        else resources.from_mapping(
            _mapping(capacity, "cell.capacity", resources.DIMENSIONS), field="cell.capacity"
        ),
    )


def _category(value: Any, where: str) -> Category:
    try:
        return Category[str(value).upper()]
    except KeyError:
        known = ", ".join(category.name.lower() for category in Category)
        raise InvalidInput(f"must be one of {known}", field=f"{where}.category") from None


def _mapping(value: Any, where: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput("must be a mapping", field=where)
    for key in value:
        if key not in known:
            raise InvalidInput(f"known are {', '.join(known)}", field=f"{where}.{key}")
    return value


def _number(
    given: Mapping[str, Any], key: str, where: str, *, least: float, default: float | None = None
) -> float:
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput("must be a number", field=f"{where}.{key}")
    if value < least:
        raise InvalidInput(f"must be at least {least:g}", field=f"{where}.{key}")
    return float(value)
