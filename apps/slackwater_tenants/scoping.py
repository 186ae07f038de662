"""Fail-closed scoping: a query for a tenant's rows without a tenant in context is an exception, not all rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

from django.db import models

from scheduler_ext.core.errors import NoTenant

_current: ContextVar[int | None] = ContextVar("slackwater_tenant", default=None)


@contextmanager
def tenant_scope(tenant_id: int) -> Iterator[None]:
    """Limit all reads and writes inside to this tenant's rows."""
    token = _current.set(tenant_id)
    try:
        yield
    finally:
        _current.reset(token)


def current_tenant_id() -> int:
    """The tenant in context; :class:`NoTenant` when there is none."""
    tenant_id = _current.get()
    if tenant_id is None:
        raise NoTenant
    return tenant_id


def tenant_in_context() -> int | None:
    """The same; ``None`` when there is none."""
    return _current.get()


class TenantQuerySet(models.QuerySet[Any]):
    """A query set that can be limited to a tenant."""

    def for_tenant(self, tenant_id: int) -> Self:
        return self.filter(tenant_id=tenant_id)


class TenantManager(models.Manager[Any]):
    """Manager of the rows of the tenant in context."""

    def get_queryset(self) -> TenantQuerySet:
        return TenantQuerySet(self.model, using=self._db).filter(tenant_id=current_tenant_id())

    def unscoped(self) -> TenantQuerySet:
        """All rows of all tenants, for the platform's own work; each use states its reason."""
        return TenantQuerySet(self.model, using=self._db)


class TenantOwned(models.Model):
    """A row that belongs to a tenant: queries without a tenant in context fail, except Django's own."""

    objects = TenantManager()
    _plain = models.Manager()

    class Meta:
        abstract = True
        base_manager_name = "_plain"
