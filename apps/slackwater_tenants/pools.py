"""Operations on pools."""

from __future__ import annotations

from django.db import transaction

from scheduler_ext.core.errors import InvalidInput
from slackwater_tenants.models import Pool

ROUNDING = 0.001
"""Guarantees of equal parts, as 16.6667, may add up to a little more than all."""


def save_pool(pool: Pool) -> None:
    """Save a pool; ``InvalidInput`` names the field by which it would not fit among the others."""
    with transaction.atomic():
        beside = Pool.objects.select_for_update().filter(cell=pool.cell, parent=pool.parent).exclude(pk=pool.pk)
        if not 0 <= pool.guaranteed <= pool.maximum <= 100:
            raise InvalidInput("must be 0 <= guaranteed <= maximum <= 100", field="guaranteed")
        if sum(other.guaranteed for other in beside) + pool.guaranteed > 100 + ROUNDING:
            raise InvalidInput("with the pools beside it more than 100 % would be guaranteed", field="guaranteed")
        above, seen = pool.parent, {pool.pk} - {None}
        while above is not None:
            if above.pk in seen:
                raise InvalidInput("a pool cannot stand in itself", field="parent")
            if above.cell != pool.cell:
                raise InvalidInput(f"the pool above is of cell {above.cell}", field="parent")
            seen.add(above.pk)
            above = above.parent
        pool.save()
