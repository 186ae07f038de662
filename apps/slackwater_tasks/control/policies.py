"""Chooses policies while the platform runs: checked, written, and known to every process within two seconds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from scheduler_ext.core.errors import InvalidInput, NotFound
from scheduler_ext.policies.registry import order_policy, share_policy, with_pools
from slackwater_conf import conf
from slackwater_resources.models import Node
from slackwater_tasks.ledger import active_policies, hints
from slackwater_tasks.ledger.active_policies import paths_of
from slackwater_tasks.models import Line, PolicyChoice
from slackwater_tenants.models import Pool, Tenant

Subject = Pool | Tenant | Line | None
"""The subject of a choice; ``None`` is the cell."""
KINDS = ("order", "share", "shadow")


def choose(
    kind: str, policy: str, parameters: Mapping[str, Any] | None = None, *, cell: str = "default",
    subject: Subject = None, actor: str = "",
) -> PolicyChoice:  # fmt: skip
    """Choose a policy for a cell, a pool, a tenant or a line; it holds from the next round on.

    ``ConfigurationError`` for a policy or parameter that cannot be, ``InvalidInput`` for a subject that cannot have
    one of its own (shares are chosen for cells and pools, a shadow for cells), and for nested levels beside pools that have.
    """
    names = _names(kind, cell, subject)
    if subject is None:
        _check_cell(cell)
    check(kind, policy, parameters or {}, names["cell"], inside=subject is not None)
    if kind == "share":
        _check_nested(policy, names["cell"], inside=subject is not None)
    with transaction.atomic():
        told = {"policy": policy, "parameters": dict(parameters or {}), "chosen_by": actor[:120], "chosen_at": Now()}
        choice, _ = PolicyChoice.objects.update_or_create(**names, defaults=told)
        transaction.on_commit(partial(_told, names["cell"]))
    choice.refresh_from_db()
    return choice


def unchoose(kind: str, *, cell: str = "default", subject: Subject = None) -> None:
    """Take a choice back, so that the next one further up holds; ``NotFound`` if nothing was chosen here."""
    names = _names(kind, cell, subject)
    with transaction.atomic():
        given = {name if value else f"{name}__isnull": value or True for name, value in names.items()}
        gone, _ = PolicyChoice.objects.filter(**given).delete()
        if not gone:
            raise NotFound(f"no {kind} policy is chosen there")
        transaction.on_commit(partial(_told, names["cell"]))


def check(kind: str, policy: str, parameters: Mapping[str, Any], cell: str, *, inside: bool = False) -> None:
    """Check that the policy can be built with these parameters and the cell's pools; else ``ConfigurationError``."""
    if kind == "order":
        order_policy(policy, parameters)
        return
    if inside and policy == "nested":
        raise InvalidInput("inside a pool a plain policy holds", field="policy")
    share_policy(*with_pools(policy, parameters, pools_of(cell)))


def check_subject(kind: str, subject: Subject) -> None:
    """``InvalidInput`` for a kind there is not, and for one that is not chosen for such a subject."""
    if kind not in KINDS:
        raise InvalidInput(f"must be one of {', '.join(KINDS)}", field="kind")
    if kind != "order" and isinstance(subject, (Tenant, Line)):
        raise InvalidInput("a share is chosen for a cell or a pool", field="kind")
    if kind == "shadow" and subject is not None:
        raise InvalidInput("a shadow is chosen for a cell", field="kind")


def pools_of(cell: str) -> dict[str, dict[str, Any]]:
    """The settings of a cell's pools by path."""
    rows = list(Pool.objects.filter(cell=cell))
    paths = paths_of((pool.pk, pool.parent_id, pool.slug) for pool in rows)
    names = ("weight", "guaranteed", "maximum", "lends", "inside")
    return {paths[pool.pk]: {name: getattr(pool, name) for name in names} for pool in rows}


def _names(kind: str, cell: str, subject: Subject) -> dict[str, Any]:
    check_subject(kind, subject)
    if subject is not None:
        cell = subject.tenant.cell if isinstance(subject, Line) else subject.cell
    subjects = {"pool": Pool, "tenant": Tenant, "line": Line}
    named = {name: subject if isinstance(subject, model) else None for name, model in subjects.items()}
    return {"kind": kind, "cell": cell, **named}


def _check_nested(policy: str, cell: str, *, inside: bool) -> None:
    """Refuse nested levels beside pools that have policies of their own: neither could hold, and the configuration would."""
    chosen = PolicyChoice.objects.filter(kind="share", cell=cell)
    if inside and chosen.filter(pool=None, policy="nested").exists():
        raise InvalidInput("the cell's policy is nested: its levels say what holds in pools", field="policy")
    if policy == "nested" and chosen.exclude(pool=None).exists():
        raise InvalidInput("pools have policies of their own: take those back first", field="policy")


def _check_cell(cell: str) -> None:
    """Check the name of a subject: a misspelt one would store a choice that is never used."""
    known = {conf().scheduler.cell}
    known |= set(Tenant.objects.values_list("cell", flat=True)) | set(Node.objects.values_list("cell", flat=True))
    if cell not in known:
        raise InvalidInput(f"there is no cell {cell!r}; known are {', '.join(sorted(known))}", field="cell")


def _told(cell: str) -> None:
    active_policies.forget()
    hints.wake_dispatcher(cell)
