"""Equal turns: the tenant that holds least for its weight is served next, counted in slots.

What a tenant holds is counted in thousandths of slots over all its categories. A tenant below its guaranteed share comes
first, then, category by category, those below their fair share, then all others: so marking work urgent, or submitting
more of it, wins nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_ext.core.types import CLIENT, LineView
from scheduler_ext.policies.tree import Path, Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualShare(Rules):
    """Equal turns by weight between tenants inside each category."""

    name: str = "equal"

    def path(self, line: LineView) -> Path:
        """Every tenant is an account of its own, whatever pools there are; the tenants of one client are one account."""
        tenant = f"tenant {line.tenant_id}"
        return (line.pool, tenant) if line.pool.startswith(CLIENT) else (tenant,)
