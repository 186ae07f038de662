"""Who uses the console: somebody's membership in one tenant, as the REST interface knows its clients."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet
from django.http import Http404

from slackwater_api.http.auth import Principal
from slackwater_tenants.members import ROLE_SCOPES
from slackwater_tenants.models import ApiKey, Membership

ROLE_WORDS: Final[dict[str, str]] = {
    Membership.Role.VIEWER: "viewer",
    Membership.Role.OPERATOR: "operator",
    Membership.Role.OWNER: "admin",
}
"""What the console calls the roles: an owner of the tenant is its admin."""
ROLES: Final = {word: role for role, word in ROLE_WORDS.items()}


class Person(Principal):
    """A member who is logged in. It has a member's widest scopes, and no key: what stands for one is never stored."""

    __slots__ = ()

    @property
    def member(self) -> Membership:
        """The membership, with its tenant and user."""
        assert self.key.member is not None
        return self.key.member

    @property
    def actor(self) -> str:
        """How history names it, as it names the platform's own users."""
        return f"user:{self.member.user.get_username()}"[:120]


def memberships(user: Any) -> QuerySet[Membership, Membership]:
    """The tenants that a user belongs to, by slug."""
    return Membership.objects.filter(user=user).select_related("tenant__plan", "user").order_by("tenant__slug")


def person_in(user: Any, slug: str) -> Person:
    """The user as a member of a tenant; to anybody else, staff of the platform too, there is no such tenant."""
    member = memberships(user).filter(tenant__slug=slug).first()
    if member is None:
        raise Http404("You belong to no organisation of that name.")
    scopes = ROLE_SCOPES[member.role]
    return Person(key=ApiKey(tenant=member.tenant, member=member, name="console", scopes=sorted(scopes)), scopes=scopes)
