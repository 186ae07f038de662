"""From parsed specs to accepted tasks: the plan's numbers, tiers, grants, and the graph."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from scheduler_ext.core.dag import Dag
from scheduler_ext.core.errors import (
    MOST_FAULTS,
    DoesNotFit,
    Faults,
    InvalidInput,
    NotGranted,
    UnknownDependency,
    no_such_name,
)
from scheduler_ext.core.labels import Labels, labels_of
from scheduler_ext.core.precedence import inherit, weigh
from scheduler_ext.core.states import Category
from scheduler_ext.task.arguments import Arguments
from scheduler_ext.task.references import MARK
from slackwater_resources import own_tiers
from slackwater_tasks.field_kinds import Map
from slackwater_tasks.ledger import learnt, reference_cache
from slackwater_tasks.ledger.rows import Accepted
from slackwater_tasks.models import Script, new_id
from slackwater_tasks.spec import NO_PAYLOAD, Payload, TaskSpec, join, parse_fields
from slackwater_tasks.submission import feasibility, limits, webhook_address
from slackwater_tenants.models import Plan, Tenant
from slackwater_tenants.services import is_granted

Found = tuple[reference_cache.TierInfo, int, int | None, int, int, Arguments | None]
"""What admission looks up: tier, line, handler, delay tolerance and cap in milliseconds, the handler's arguments."""
Outside = tuple[UUID, int, str]
"""A dependency on an existing task: the parent, the child's place in its list, and the path of the field."""
NAMES_LOOKED_AT = 1_000
"""The most names of handlers among which one that was misspelt is looked for."""
UTF8_MOST = 4
"""The most bytes a character takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Tasks submitted together, checked."""

    tasks: list[Accepted]
    edges: list[tuple[UUID, UUID]]
    """(parent, child) inside the batch."""
    outside: list[Outside]


def admit(tenant: Tenant, specs: Sequence[TaskSpec], *, payloads: Sequence[Payload] | None = None, where: str = "",
          workflow: bool = False, ids: Sequence[UUID] = (), share: str = "") -> Batch:  # fmt: skip
    """Check specs against the tenant's plan and one another; the first fault is raised with its field.

    ``payloads``: the tasks' arguments, where their specs are shared and have none. ``ids``: those the tasks shall have.
    ``share``: the workflow, if it has a share of its own.
    """
    paths = [f"{where}[{n}]" if where else "" for n in range(len(specs))]
    dag, outside = _parents(specs, paths, tenant.plan, workflow=workflow)
    parents = dag.parents if dag is not None else [()] * len(specs)
    webhook_address.check_tasks(tenant.pk, specs, paths)
    ids = ids or [new_id() for _ in specs]
    has_children = {parent for needs in parents for parent in needs}
    known_scripts = _known_scripts(tenant, specs)
    check = _Admission(tenant, known_scripts, share)
    own = [spec.payload for spec in specs] if payloads is None else payloads
    accept = check.accept
    try:
        tasks = [
            accept(spec, payload, path, ids[n], pending=len(parents[n]), has_children=n in has_children)
            for n, (spec, payload, path) in enumerate(zip(specs, own, paths, strict=True))
        ]
    except InvalidInput:
        faults = Faults()
        for n, (spec, payload, path) in enumerate(zip(specs, own, paths, strict=True)):
            faults.of(accept, spec, payload, path, ids[n], pending=0, has_children=False)
            if len(faults.found) == MOST_FAULTS:
                break
        faults.tell()
        raise
    edges = [(ids[parent], ids[n]) for n, needs in enumerate(parents) for parent in needs]
    if dag is not None and (edges or (workflow and len(tasks) > 1)):
        _order(tenant, dag, tasks, workflow=workflow, share=share)
    return Batch(tasks=tasks, edges=edges, outside=outside)


def _order(tenant: Tenant, dag: Dag, tasks: Sequence[Accepted], *, workflow: bool, share: str) -> None:
    """Note the order that the graph asks of its tasks: the paths before them, and what needs them."""
    expected = learnt.of_tenant(tenant.pk, [learnt.keys_of(task.spec) for task in tasks])
    urgent = [task.spec.category is Category.URGENT for task in tasks]
    own = list(zip(urgent, [task.spec.priority for task in tasks], strict=True))
    weights = weigh(dag, expected, [0 if workflow else None] * len(tasks))
    for task, before, (pressed, priority), weight in zip(tasks, urgent, inherit(dag, own), weights, strict=True):
        task.weight, task.inherited, task.pressed = weight, priority, pressed
        if pressed and not before:
            labels = labels_asked(tenant.plan, task.spec)
            task.line_id = reference_cache.line_id(tenant.pk, int(Category.URGENT), task.tier.id, labels, share)


def _parents(specs: Sequence[TaskSpec], paths: Sequence[str], plan: Plan, *, workflow: bool,
             ) -> tuple[Dag | None, list[Outside]]:  # fmt: skip
    """The graph of the batch, and the dependencies on existing tasks."""
    if not workflow and not any(spec.depends_on for spec in specs):
        return None, []
    inside, outside = _split_dependencies(specs, paths)
    return _graph(specs, inside, paths, plan, workflow=workflow), outside


def _split_dependencies(specs: Sequence[TaskSpec], paths: Sequence[str],
                        ) -> tuple[list[list[str]], list[Outside]]:  # fmt: skip
    """A dependency by name is inside the batch; an id that is no name in it exists already."""
    names = {spec.name for spec in specs if spec.name}
    inside: list[list[str]] = []
    outside: list[Outside] = []
    for n, spec in enumerate(specs):
        here = []
        for place, wanted in enumerate(spec.depends_on):
            if wanted in names:
                here.append(wanted)
                continue
            field = join(paths[n], f"depends_on[{place}]")
            try:
                outside.append((UUID(wanted), n, field))
            except ValueError:
                raise UnknownDependency(f"there is no task {wanted!r}", field=field) from None
        inside.append(here)
    return inside, outside


def _graph(specs: Sequence[TaskSpec], inside: list[list[str]], paths: Sequence[str], plan: Plan, *,
           workflow: bool) -> Dag:  # fmt: skip
    wanted = {name for needs in inside for name in needs}
    # Names must be unique inside a workflow; in a plain list only those that others refer to.
    names = [s.name if s.name and (workflow or s.name in wanted) else f"\x00{n}" for n, s in enumerate(specs)]

    def path(index: int, place: int | None) -> str:
        return join(paths[index], "name" if place is None else f"depends_on[{place}]")

    dag = Dag.build(names, inside, path=path)
    if workflow or dag.edges:
        limits.check_dag(plan, tasks=len(specs), edges=dag.edges, depth=dag.depth)
    return dag


def _known_scripts(tenant: Tenant, specs: Sequence[TaskSpec]) -> set[str]:
    wanted = {spec.script for spec in specs if spec.script}
    if not wanted:
        return set()
    rows = Script.objects.unscoped().for_tenant(tenant.pk).filter(sha256__in=wanted)  # the tenant is named
    return set(rows.values_list("sha256", flat=True))


class _Admission:
    """Checks the tasks of one call; what many of them share is looked up and checked once."""

    def __init__(self, tenant: Tenant, scripts: set[str], share: str) -> None:
        self.share = share
        self.tenant, self.max_payload = tenant, tenant.plan.max_payload_bytes
        self.scripts = scripts
        self._resumable = reference_cache.resumable_handlers()
        self._known: dict[tuple[Any, ...], Found] = {}
        self._last: tuple[TaskSpec | None, Any] = (None, None)
        self._full = TaskSpec()
        self._declared: dict[str, dict[str, Any]] = {}
        """By handler: the defaults for what a submission leaves open."""

    def accept(self, spec: TaskSpec, payload: Payload, path: str, task_id: UUID, *, pending: int, has_children: bool,
               ) -> Accepted:  # fmt: skip
        """Check one task; raises what is wrong with it, naming the field."""
        if spec is not self._last[0]:
            full = self._completed(spec)
            self._last, self._full = (spec, self._find(full, path)), full
        spec = self._full
        tier, line_id, handler_id, tolerance_ms, cap_ms, arguments = self._last[1]
        args, kwargs = payload
        if (len(args) + len(kwargs)) * UTF8_MOST > self.max_payload:
            size = len(args.encode()) + len(kwargs.encode())
            limits.check_payload(self.tenant.plan, size, field=join(path, "args"))
        if arguments is not None and (arguments.required or payload != NO_PAYLOAD):
            check_arguments(spec.handler, arguments, payload, path, mapped=spec.map)
        return Accepted(
            id=task_id, spec=spec, payload=payload, tier=tier,
            line_id=line_id, handler_id=handler_id, tolerance_ms=tolerance_ms,
            cap_ms=cap_ms, pending=pending + (spec.map is not None), has_children=has_children,
            checkpoints=spec.checkpoints or spec.handler in self._resumable,
            pressed=spec.category is Category.URGENT,
        )  # fmt: skip

    def _completed(self, spec: TaskSpec) -> TaskSpec:
        """The specification with the defaults of its handler, or of the plan, for what the submission leaves open."""
        declared = self._declared.get(spec.handler)
        if declared is None:
            declared = self._declared[spec.handler] = self._defaults(spec.handler)
        left = {name: value for name, value in declared.items() if name not in spec.chosen}
        if spec.require_labels and (more := declared.get("require_labels")):
            left["require_labels"] = tuple(dict.fromkeys((*more, *spec.require_labels)))
        if "cap_ms" in left:
            left["cap_ms"] = min(left["cap_ms"], self.tenant.plan.max_cap_s * 1000)
        return replace(spec, **left) if left else spec

    def _defaults(self, handler: str) -> dict[str, Any]:
        declared = dict(reference_cache.handler_defaults(handler))
        for pattern, own in self.tenant.plan.handler_defaults.items():
            if handler and is_granted((pattern,), handler):
                declared |= parse_fields(own, "plan")
        return declared

    def _find(self, spec: TaskSpec, path: str) -> Found:
        key = (
            spec.tier, spec.cap_ms, spec.category, spec.handler, spec.script, spec.script_path, spec.delay_tolerance_ms,
            spec.require_labels, spec.prefer_labels, self.tenant.plan.refuse_late and feasibility.waits_at_once(spec),
            *spec.resources.items(),
        )  # fmt: skip
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._look_up(spec, path)
        return known

    def _named(self, spec: TaskSpec, path: str) -> tuple[reference_cache.TierInfo, int | None]:
        """The tier and the handler of those names; unknown ones are told together."""
        tier, handler = (self.tenant, spec.tier, join(path, "tier")), (self.tenant, spec, path, self.scripts)
        try:
            return resolve_tier(*tier), _runnable(*handler)
        except InvalidInput:
            faults = Faults()
            faults.of(resolve_tier, *tier)
            faults.of(_runnable, *handler)
            faults.tell()
            raise

    def _look_up(self, spec: TaskSpec, path: str) -> Found:
        tenant, plan = self.tenant, self.tenant.plan
        tier, handler_id = self._named(spec, path)
        if spec.resources:
            tier = _with_resources(tenant, tier, spec.resources, join(path, "resources"))
        limits.check_category(plan, spec.category, field=join(path, "category"))
        longest = plan.max_cap_s * 1000
        cap_ms = spec.cap_ms if spec.cap_ms is not None else min(tier.default_cap_ms, longest)
        limits.check_cap(plan, cap_ms, field=join(path, "execution_cap_s"))
        tolerance_ms = default_tolerance(plan, spec)
        labels = labels_asked(plan, spec)
        if plan.refuse_impossible:
            feasibility.check_fits(tenant, spec, tier.vector, handler_id, path, labels)
        if plan.refuse_late:
            feasibility.check_wait(tenant, spec, tolerance_ms, path)
        try:
            line_id = reference_cache.line_id(tenant.pk, int(spec.category), tier.id, labels, self.share)
        except InvalidInput as error:
            field = error.field or ""
            raise DoesNotFit(str(error), field=field if self.share else join(path, field)) from None
        arguments = reference_cache.arguments(spec.handler) if spec.handler else None
        return tier, line_id, handler_id, tolerance_ms, cap_ms, arguments


def check_arguments(handler: str, arguments: Arguments, payload: Payload, where: str = "", *,
                    mapped: Mapping[str, str] | None = None) -> None:  # fmt: skip
    """Check arguments against the schema its workers publish now; ``InvalidInput`` names the one that is wrong.

    ``mapped``: of what map an element comes beside them.
    """
    if mapped:
        element = {MARK: mapped["over"]}
        args, kwargs = Map.filled(mapped, json.loads(payload[0]), json.loads(payload[1]), element, 0)
        payload = (json.dumps(args), json.dumps(kwargs))
    try:
        arguments.check_payload(payload, partial(join, where))
    except InvalidInput:
        now = reference_cache.arguments(handler, anew=True)
        if now is not None:
            now.check_payload(payload, partial(join, where))


def resolve_tier(tenant: Tenant, slug: str, field: str) -> reference_cache.TierInfo:
    """The tier of that name, if it exists and the plan allows it."""
    known = reference_cache.tiers(tenant.pk)
    tier = known.get(slug)
    if tier is None:
        reference_cache.forget_tiers(tenant.pk)
        known = reference_cache.tiers(tenant.pk)
        tier = known.get(slug)
    if tier is None:
        raise no_such_name(f"there is no tier {slug!r}", slug, known, field, f"known are {', '.join(sorted(known))}")
    if tier.shared:
        limits.check_tier(tenant.plan, slug, field=field)
    return tier


def _with_resources(
    tenant: Tenant, tier: reference_cache.TierInfo, resources: Mapping[str, int], field: str
) -> reference_cache.TierInfo:
    """The tier with some resources changed: one of the tenant's own, made on first use."""
    slug = own_tiers.derived_slug(tier.slug, resources)
    known = reference_cache.tiers(tenant.pk).get(slug)
    if known is None or known.shared:
        made = own_tiers.derive_tier(tenant, tier.id, resources, field)
        known = reference_cache.TierInfo(made.pk, slug, made.default_cap_s * 1000, shared=False, vector=made.vector)
        reference_cache.tier_made(tenant.pk, known)
    return known


def default_tolerance(plan: Plan, spec: TaskSpec) -> int:
    """The task's delay tolerance in milliseconds, else its plan's for the category."""
    if spec.delay_tolerance_ms is not None:
        return spec.delay_tolerance_ms
    return int(plan.delay_tolerance_s.get(spec.category.name.lower(), 300) * 1000)


def labels_asked(plan: Plan, spec: TaskSpec) -> Labels | None:
    """The labels a task asks for: its own, its handler's, and its plan's."""
    return labels_of((*plan.require_labels, *spec.require_labels), (*plan.prefer_labels, *spec.prefer_labels))


def _runnable(tenant: Tenant, spec: TaskSpec, path: str, scripts: set[str]) -> int | None:
    """The handler's id, or None for a script; raises unless it exists and the plan grants it."""
    if spec.handler:
        field = join(path, "handler")
        limits.check_handler(tenant.plan, spec.handler, field=field)
        handler_id = reference_cache.handler_id(spec.handler)
        if handler_id is None:
            names = [
                name
                for name in reference_cache.handler_names(NAMES_LOOKED_AT)
                if is_granted(tenant.plan.handlers, name)
            ]
            what = f"no worker has exported a handler {spec.handler!r}, and none is declared"
            raise no_such_name(what, spec.handler, names, field, "")
        return handler_id
    field = join(path, "script" if spec.script else "script_path")
    if not tenant.plan.scripts:
        raise NotGranted("the plan does not grant scripts", field=field)
    if spec.script and spec.script not in scripts:
        raise DoesNotFit("there is no such script in the script store", field=field)
    if spec.script_path and not tenant.script_root:
        raise DoesNotFit("the tenant has no mounted folder", field=field)
    return None
