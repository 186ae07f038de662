"""Equal turns: inside each category the tenant that holds least for its weight is served next.

A tenant below its guaranteed share comes first, then the categories in their order. What a tenant holds is counted in
thousandths of slots over all its categories, so marking work urgent, or handing in more of it, wins nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_ext.core.types import LineView, Snapshot, TenantView
from scheduler_ext.policies.accounts import Account, Measure
from scheduler_ext.policies.share.terms import check_memory, tenant_terms
from scheduler_ext.policies.tree import Path, Terms, TreeChooser


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualShare:
    """Equal turns by weight between tenants inside each category."""

    name: str = "equal"
    memory_s: int = 0
    """Past use counts as held for this long; 0: only what is in flight counts."""

    def __post_init__(self) -> None:
        """Refuse a negative memory."""
        check_memory(self.memory_s)

    @property
    def vectors(self) -> bool:
        """Turns count slots alone."""
        return False

    def start(self, snapshot: Snapshot) -> TreeChooser:
        """Begin a round over ``snapshot``."""
        return TreeChooser(snapshot, self)

    def path(self, line: LineView) -> Path:
        """Each tenant stands beside the others."""
        return (f"tenant {line.tenant_id}",)

    def kept(self) -> list[Path]:
        """None: there are no pools."""
        return []

    def owned(self, line: LineView) -> bool:
        """Every account is a tenant's own."""
        del line
        return True

    def terms(self, path: Path, tenant: TenantView | None, above: Account, measure: Measure) -> Terms:
        """The plan's weight and guaranteed share."""
        del path, above
        return tenant_terms(tenant, measure)

    def key(self, account: Account) -> int:
        """Held slots for its weight."""
        return (account.share + account.past) * account.weight
