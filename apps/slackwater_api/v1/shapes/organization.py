"""Shapes of a tenant's own: the organisation, its teams, users and keys, its tiers."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from scheduler_ext.core.resources import DIMENSIONS
from slackwater_api.v1.shapes.common import title
from slackwater_api.v1.shapes.platform import PAUSED_BY
from slackwater_conf import SLUG_FORM
from slackwater_tenants.keys import MAX_ORIGINS, ORIGIN, TENANT_SCOPES
from slackwater_tenants.models import ApiKey, Membership

ROLES: list[str] = Membership.Role.values
SCOPES: list[str] = ApiKey.Scope.values
GIVEN: list[str] = sorted(TENANT_SCOPES)


class OrganizationOut(s.Serializer[Any]):
    """Your organisation, and the rights of the key you use."""

    slug = s.CharField()
    name = s.CharField()
    plan = s.CharField()
    cell = s.CharField()
    paused = s.BooleanField(help_text="Tasks are accepted, none is started.")
    paused_by = s.ChoiceField(PAUSED_BY, allow_null=True, help_text="Who paused it, and can let it go on.")
    created_at = s.DateTimeField()
    scopes = s.ListField(child=s.ChoiceField(SCOPES), help_text="Of the key you use, within its member's role.")
    member_id = s.UUIDField(allow_null=True, help_text="Whose key it is; null: the organisation's.")
    role = s.ChoiceField(ROLES, allow_null=True)


class OwnKey(s.Serializer[Any]):
    """The key that asks."""

    id = s.CharField(help_text="Its visible part, by which history names it.")
    name = s.CharField()
    expires_at = s.DateTimeField(allow_null=True)


class OwnOrganization(s.Serializer[Any]):
    """Whose key it is."""

    slug = s.CharField()
    name = s.CharField()
    plan = s.CharField()


class OwnMember(s.Serializer[Any]):
    """The user whose key it is."""

    id = s.UUIDField()
    username = s.CharField()
    role = s.ChoiceField(ROLES)


class WhoAmI(s.Serializer[Any]):
    """Who asks, and what it may do."""

    version = s.CharField(help_text="Of the interface.")
    key = OwnKey()
    scopes = s.ListField(child=s.ChoiceField(SCOPES), help_text="Of the key, within its member's role.")
    organization = OwnOrganization()
    member = OwnMember(allow_null=True, help_text="Null: the key is the organisation's.")


class OrganizationChange(s.Serializer[Any]):
    """The fields of an organisation that can be changed."""

    name = title(200, required=False)
    paused = s.BooleanField(required=False, help_text="Tasks are accepted, none is started.")


class TeamIn(s.Serializer[Any]):
    """A team to make."""

    slug = s.RegexField(SLUG_FORM)
    name = title(120)


class TeamChange(s.Serializer[Any]):
    """A team's other name."""

    name = title(120)


class TeamOut(s.Serializer[Any]):
    """A team."""

    slug = s.CharField()
    name = s.CharField()
    members = s.IntegerField(help_text="How many users belong to it.")
    created_at = s.DateTimeField()


class MemberChange(s.Serializer[Any]):
    """The fields of a user that can be changed."""

    email = s.EmailField(max_length=254, required=False, allow_blank=True)
    role = s.ChoiceField(ROLES, required=False, help_text="viewer: read; operator: submit and cancel too; owner: all.")
    team = s.CharField(required=False, allow_null=True, help_text="A team's slug; null: none.")


class MemberIn(MemberChange):
    """A user to make."""

    username = s.RegexField(r"^[\w.@+-]{1,150}$", help_text="Unique on the platform.")


class MemberOut(s.Serializer[Any]):
    """A user of your organisation."""

    id = s.UUIDField()
    username = s.CharField()
    email = s.CharField(allow_null=True)
    role = s.ChoiceField(ROLES)
    team = s.CharField(allow_null=True)
    created_at = s.DateTimeField()


class KeyIn(s.Serializer[Any]):
    """A key to make."""

    name = title(120)
    scopes = s.ListField(child=s.ChoiceField(GIVEN), min_length=1, help_text="What it may do; manage includes all.")
    expires_at = s.DateTimeField(required=False, allow_null=True)
    member_id = s.UUIDField(
        required=False, allow_null=True, help_text="Whose it is: it never can do more than the role."
    )
    origins = s.ListField(
        child=s.RegexField(f"^({ORIGIN.pattern})$"), required=False, max_length=MAX_ORIGINS,
        help_text="Origins whose pages may read what it is answered; none: no page's.",
    )  # fmt: skip


class KeyOut(s.Serializer[Any]):
    """A key, without its secret."""

    id = s.CharField(help_text="Its visible part, by which history names it.")
    name = s.CharField()
    scopes = s.ListField(child=s.ChoiceField(SCOPES))
    member_id = s.UUIDField(allow_null=True)
    origins = s.ListField(child=s.CharField(), help_text="Origins whose pages may read what it is answered.")
    created_at = s.DateTimeField()
    expires_at = s.DateTimeField(allow_null=True)
    revoked_at = s.DateTimeField(allow_null=True)
    last_used_at = s.DateTimeField(allow_null=True, help_text="To the minute.")


class KeyMade(KeyOut):
    """A new key with its text; it is shown this once."""

    key = s.CharField()


class KeyRotation(s.Serializer[Any]):
    """How long the old key goes on."""

    overlap_s = s.IntegerField(required=False, min_value=0, max_value=604_800, help_text="0: it ends at once.")


def _amounts(*, required: bool) -> dict[str, s.Field[Any, Any, Any, Any]]:
    return {
        name: s.IntegerField(min_value=1 if least else 0, required=least and required)
        for name in DIMENSIONS
        for least in [name in {"cpu_milli", "memory_mb"}]
    }


class TierChange(s.Serializer[Any]):
    """What can be changed of a tier of your own; the plan says how much each may be."""

    default_execution_cap_s = s.IntegerField(min_value=1, required=False, help_text="Seconds.")

    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        return {**_amounts(required=False), **super().get_fields()}


class TierIn(TierChange):
    """A tier to make."""

    name = s.RegexField(SLUG_FORM)

    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        """CPU and memory are what no task can do without."""
        return {**super().get_fields(), **_amounts(required=True)}
