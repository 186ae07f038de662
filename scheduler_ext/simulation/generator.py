"""Generates work from a YAML file: tenants, arrival processes, run times, day and night.

::

    duration_s: 3600
    begins: 2026-01-05T18:00:00+01:00
    ceiling_windows: 22:00-06:00 Europe/Berlin
    cell: {nodes: 2, slots: 8, labels: [[gpu=a100]]}
    rates:
      - {tenant: shop, key: bank, starts: 240, per_s: 60}
    tenants:
      - name: shop
        weight: 2
        category: urgent
        arrivals: {process: poisson, per_s: 3, day: {period_s: 86400, amplitude: 0.8}}
        run_s: {distribution: lognormal, mean: 0.5, sigma: 1.0}
        vector: {cpu_milli: 500}
        tolerance_s: 2
        rate_key: bank
        require_labels: [gpu]
      - name: archive
        arrivals: {process: fixed, every_s: 0.1, count: 350, start_s: 10}
        run_s: {distribution: constant, value: 0.2}
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from scheduler_ext.core import ceiling_windows, resources
from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.labels import fault_in, labels_of
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import CLIENT, Vector, WorkKind
from scheduler_ext.simulation.model import ONE_CPU, Cell, Job, RateLimit, Trace

MICRO: Final = 1_000_000
_TENANT_KEYS: Final = (
    "arrivals", "category", "client", "expected", "handler", "kind", "max_running", "name", "pool", "prefer_labels",
    "priority", "rate_key", "require_labels", "run_s", "share_weight", "tolerance_s", "vector", "weight",
)  # fmt: skip


def read_yaml(path: Path, *, seed: int = 0) -> tuple[Trace, Cell]:
    """Generate a trace from a YAML file; the same seed gives the same trace."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise InvalidInput(f"is not YAML: {error}", field="trace") from error
    return generate(document, name=path.stem, seed=seed)


def generate(document: Any, *, name: str = "generated", seed: int = 0) -> tuple[Trace, Cell]:
    """Generate a trace from the document's mapping; errors name the field."""
    top = _mapping(document, "trace", ("duration_s", "cell", "tenants", "begins", "ceiling_windows", "rates"))
    duration = _number(top, "duration_s", "trace", default=math.inf, least=0)
    tenants = top.get("tenants")
    if not isinstance(tenants, list) or not tenants:
        raise InvalidInput("must be a list of tenants", field="tenants")
    rates = Rates(top.get("rates"))
    jobs: list[Job] = []
    names: dict[int, str] = {}
    weights: dict[int, int] = {}
    shares: dict[int, int] = {}
    for index, entry in enumerate(tenants):
        where = f"tenants[{index}]"
        tenant = _mapping(entry, where, _TENANT_KEYS)
        label = str(tenant.get("name", index))
        number = next((known for known, other in names.items() if other == label), len(names))
        names[number] = label
        weights[number] = int(_number(tenant, "weight", where, default=1, least=1))
        if "share_weight" in tenant:
            shares[index] = int(_number(tenant, "share_weight", where, least=1))
        limits = rates.of(label, str(tenant.get("handler", "")), str(tenant.get("rate_key", "")))
        jobs.extend(_jobs(tenant, number, duration, random.Random(f"{seed}/{index}"), where, limits, index))
    jobs.sort(key=lambda job: (job.arrived_us, job.tenant))
    for index, job in enumerate(jobs):
        job.index = index
        job.task_id = str(index)
    rates.check(names.values())
    trace = Trace(
        name=name, jobs=jobs, tenants=names, weights=weights, shares=shares, begins_at=moment(top.get("begins"), "begins"),
        ceiling_windows=_windows(top.get("ceiling_windows", "")), limits=rates.limits,
    )  # fmt: skip
    return trace, _cell(top.get("cell") or {})


def moment(value: Any, where: str) -> float:
    """A moment as Unix seconds, from a YAML or ISO 8601 time with its offset; 0 where none is given."""
    if value is None:
        return 0.0
    try:
        given = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise InvalidInput("must be a time like 2026-01-05T18:00:00+01:00", field=where) from None
    # YAML gives a time with an offset in UTC, and without that name.
    return (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()


def _windows(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput("must be a string", field="ceiling_windows")
    ceiling_windows.parse(value)
    return value


class Rates:
    """The execution rates of a document, and to whose tasks each applies, as live."""

    def __init__(self, value: Any) -> None:
        if value is not None and not isinstance(value, list):
            raise InvalidInput("must be a list", field="rates")
        self.limits: dict[int, RateLimit] = {}
        self._subjects: list[tuple[str, str, str]] = []
        for index, entry in enumerate(value or ()):
            where = f"rates[{index}]"
            given = _mapping(entry, where, ("tenant", "handler", "key", "starts", "per_s"))
            tenant, handler, key = (str(given.get(name, "")) for name in ("tenant", "handler", "key"))
            if not (tenant or handler) or (key and (handler or not tenant)):
                raise InvalidInput("is of a tenant, of a handler, of both, or of a tenant's key", field=where)
            starts = _number(given, "starts", where, least=1)
            per_s = _number(given, "per_s", where, least=0.001)
            self.limits[index] = RateLimit(starts=int(starts), per_us=int(per_s * MICRO))
            self._subjects.append((tenant, handler, key))

    def of(self, tenant: str, handler: str, key: str) -> tuple[int, ...]:
        """The rate limits that a task's start counts against."""
        return tuple(
            index
            for index, (whose, of_handler, of_key) in enumerate(self._subjects)
            if whose in ("", tenant) and of_handler in ("", handler) and of_key in ("", key)
        )

    def check(self, tenants: Iterable[str]) -> None:
        """Check that each names a tenant of the document."""
        known = {"", *tenants}
        for index, (tenant, _, _) in enumerate(self._subjects):
            if tenant not in known:
                raise InvalidInput(f"there is no tenant {tenant!r}", field=f"rates[{index}].tenant")


def _jobs(tenant: Mapping[str, Any], number: int, duration: float, rng: random.Random, where: str,
          rates: tuple[int, ...], index: int) -> Iterator[Job]:  # fmt: skip
    draw = _distribution(tenant.get("run_s"), f"{where}.run_s")
    vector = ONE_CPU
    if "vector" in tenant:
        vector = _vector(tenant["vector"], f"{where}.vector")
    expected = _expected(tenant.get("expected", True), f"{where}.expected")
    kind = _kind(tenant.get("kind", "process"), f"{where}.kind")
    tolerance = tenant.get("tolerance_s")
    client = str(tenant.get("client", ""))
    if "/" in client:
        raise InvalidInput("must be a name without slashes", field=f"{where}.client")
    pool = str(tenant.get("pool", "")) or (f"{CLIENT}{client}" if client else "")
    asked = labels_of(*(_labels(tenant.get(name), f"{where}.{name}") for name in ("require_labels", "prefer_labels")))
    most = int(_number(tenant, "max_running", where, least=1)) if "max_running" in tenant else 0
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
            expected_us=expected(run, rng),
            kind=kind,
            handler=str(tenant.get("handler", "")),
            tolerance_us=None if tolerance is None else int(float(tolerance) * MICRO),
            pool=pool,
            mutex_key=f"workflow {index}" if most else None,
            mutex_limit=most or 1,
            workflow=index if most or "share_weight" in tenant else None,
            labels=asked,
            rates=rates,
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


def _expected(value: Any, where: str) -> Callable[[int, random.Random], int | None]:
    """What is known of a run time beforehand: the run time, nothing, or a request that is a multiple of it."""
    if isinstance(value, Mapping):
        draw = _distribution(value, where)
        return lambda run, rng: max(1, int(run * draw(rng)))
    return lambda run, _: run if value else None


def _kind(value: Any, where: str) -> WorkKind:
    try:
        return WorkKind(str(value))
    except ValueError:
        raise InvalidInput(f"must be one of {', '.join(WorkKind)}", field=where) from None


def _cell(value: Any) -> Cell:
    given = _mapping(value, "cell", ("nodes", "slots", "capacity", "labels"))
    slots = given.get("slots", 4)
    by_kind = _mapping(slots, "cell.slots", tuple(WorkKind)) if isinstance(slots, Mapping) else {"process": slots}
    counts = {_kind(kind, "cell.slots"): int(_number(by_kind, kind, "cell.slots", least=0)) for kind in by_kind}
    capacity, labels = given.get("capacity"), given.get("labels") or []
    if not isinstance(labels, list):
        raise InvalidInput("must be a list, with the labels of each of the first nodes", field="cell.labels")
    return Cell(
        nodes=int(_number(given, "nodes", "cell", default=1, least=1)),
        slots=counts.pop(WorkKind.PROCESS, 0),
        others=counts,
        labels=tuple(_labels(each, f"cell.labels[{n}]") for n, each in enumerate(labels)),
        capacity=None if capacity is None else _vector(capacity, "cell.capacity"),
    )


def _labels(value: Any, where: str) -> tuple[str, ...]:
    """Labels of a node, or those that work asks for."""
    if value is not None and not isinstance(value, list):
        raise InvalidInput("must be a list of labels", field=where)
    for n, label in enumerate(value or ()):
        if fault := fault_in(label) if isinstance(label, str) else "must be a string":
            raise InvalidInput(fault, field=f"{where}[{n}]")
    return tuple(value or ())


def _category(value: Any, where: str) -> Category:
    try:
        return Category[str(value).upper()]
    except KeyError:
        known = ", ".join(category.name.lower() for category in Category)
        raise InvalidInput(f"must be one of {known}", field=f"{where}.category") from None


def _vector(value: Any, where: str) -> Vector:
    return resources.from_mapping(_mapping(value, where), field=where)


def _mapping(value: Any, where: str, known: tuple[str, ...] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput("must be a mapping", field=where)
    for key in value:
        if known is not None and key not in known:
            raise InvalidInput(f"known are {', '.join(known)}", field=f"{where}.{key}")
    return value


def _number(given: Mapping[str, Any], key: str, where: str, *, least: float, default: float | None = None) -> float:
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput("must be a number", field=f"{where}.{key}")
    if value < least:
        raise InvalidInput(f"must be at least {least:g}", field=f"{where}.{key}")
    return float(value)
