"""Teams and users of a tenant, their roles, and what each role may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.db.models import Count, QuerySet

from scheduler_ext.core.errors import Conflict, DoesNotFit, Faults, InvalidInput, NotFound
from scheduler_ext.core.plain_text import STEERS
from slackwater_tenants.models import SLUG, Membership, Team, Tenant

ROLE_SCOPES: Final[dict[str, frozenset[str]]] = {
    Membership.Role.VIEWER: frozenset({"read"}),
    Membership.Role.OPERATOR: frozenset({"read", "submit", "cancel"}),
    Membership.Role.OWNER: frozenset({"read", "submit", "cancel", "manage"}),
}
"""The widest scopes of a member's own keys."""
MAX_MEMBERS = 10_000
TEAM_FIELDS = ("slug", "name")
MEMBER_FIELDS = ("username", "email", "role", "team")


def check_fields(data: Any, known: tuple[str, ...], faults: Faults | None = None) -> dict[str, Any]:
    """``data`` as an object of ``known`` fields; ``InvalidInput`` names those that are not.

    ``faults``: where they are collected, for the caller to tell with its own.
    """
    if not isinstance(data, dict):
        raise InvalidInput("The body must be an object.")
    found = faults or Faults()
    fields = found.unknown(data, known)
    if faults is None:
        found.tell()
    return fields


def text_of(data: Mapping[str, Any], name: str, most: int, *, least: int = 1) -> str:
    """A field's text, trimmed, of ``least`` to ``most`` characters."""
    value = data.get(name)
    if not isinstance(value, str) or not least <= len(value.strip()) or len(value) > most:
        raise InvalidInput(f"must be a string of {least} to {most} characters", field=name)
    if STEERS.search(value):
        raise InvalidInput("must not contain control characters", field=name)
    return value.strip()


def slug_of(data: Mapping[str, Any], name: str) -> str:
    """A field as a slug."""
    value = data.get(name)
    try:
        SLUG(value if isinstance(value, str) else "")
    except ValidationError as error:
        raise InvalidInput(str(error.messages[0]), field=name) from None
    return str(value)


# -- teams ------------------------------------------------------------------------------------------------------------
def teams(tenant_id: int) -> QuerySet[Team, Team]:
    """A tenant's teams, each with how many belong to it."""
    return Team.objects.filter(tenant_id=tenant_id).annotate(members=Count("memberships"))


def get_team(tenant_id: int, slug: str) -> Team:
    """One team; ``NotFound`` when the tenant has none of that slug."""
    found = teams(tenant_id).filter(slug=slug).first()
    if found is None:
        raise NotFound(f"There is no team {slug[:63]!r}.")
    return found


def create_team(tenant: Tenant, data: Any) -> Team:
    """A new team; ``Conflict`` when its slug is taken."""
    faults = Faults()
    fields = check_fields(data, TEAM_FIELDS, faults)
    slug, name = faults.of(slug_of, fields, "slug"), faults.of(text_of, fields, "name", 120)
    faults.tell()
    try:
        with transaction.atomic():
            Team.objects.create(tenant=tenant, slug=slug, name=name)
    except IntegrityError:
        raise Conflict(f"there is a team {slug!r} already", field="slug") from None
    return get_team(tenant.pk, slug)


def rename_team(tenant_id: int, slug: str, data: Any) -> Team:
    """Give a team another name; its slug stays."""
    fields = check_fields(data, ("name",))
    name = text_of(fields, "name", 120)
    if not Team.objects.filter(tenant_id=tenant_id, slug=slug).update(name=name):
        raise NotFound(f"There is no team {slug[:63]!r}.")
    return get_team(tenant_id, slug)


def delete_team(tenant_id: int, slug: str) -> None:
    """Remove a team; its members stay members of the tenant."""
    get_team(tenant_id, slug).delete()


def _team_of(tenant_id: int, value: Any) -> Team | None:
    if value is None:
        return None
    found = Team.objects.filter(tenant_id=tenant_id, slug=value).first() if isinstance(value, str) else None
    if found is None:
        raise DoesNotFit("there is no such team", field="team")
    return found


# -- members ----------------------------------------------------------------------------------------------------------
def members(tenant_id: int) -> QuerySet[Membership, Membership]:
    """A tenant's users with their roles."""
    return Membership.objects.filter(tenant_id=tenant_id).select_related("user", "team")


def get_member(tenant_id: int, member_id: UUID) -> Membership:
    """One member by the id that clients know; ``NotFound`` when the tenant has none such."""
    found = members(tenant_id).filter(public_id=member_id).first()
    if found is None:
        raise NotFound(f"There is no member {member_id}.")
    return found


def _role_of(value: Any) -> str:
    if value not in Membership.Role.values:
        raise InvalidInput(f"must be one of {', '.join(Membership.Role.values)}", field="role")
    return str(value)


def _email_of(data: Mapping[str, Any]) -> str:
    value = data.get("email", "")
    if not isinstance(value, str) or len(value) > 254:
        raise InvalidInput("must be an e-mail address", field="email")
    if value:
        try:
            validate_email(value)
        except ValidationError:
            raise DoesNotFit("must be an e-mail address", field="email") from None
    return value


def _username_of(data: Mapping[str, Any]) -> str:
    username = text_of(data, "username", 150)
    try:
        get_user_model().username_validator(username)
    except ValidationError as error:
        raise InvalidInput(str(error.messages[0]), field="username") from None
    return username


def create_member(tenant: Tenant, data: Any) -> Membership:
    """A new user with a role. ``Conflict`` when the name is taken: a client cannot take in users of others.

    It has no password: it works by keys of its own, until an administrator of the platform gives it one.
    """
    faults = Faults()
    fields = check_fields(data, MEMBER_FIELDS, faults)
    username = faults.of(_username_of, fields)
    email, role = faults.of(_email_of, fields), faults.of(_role_of, fields.get("role", Membership.Role.VIEWER))
    team = faults.of(_team_of, tenant.pk, fields.get("team"))
    faults.tell()
    users = get_user_model()
    with transaction.atomic():
        lock_tenant(tenant.pk)
        if Membership.objects.filter(tenant=tenant).count() >= MAX_MEMBERS:
            raise Conflict(f"a tenant has at most {MAX_MEMBERS} members")
        try:
            with transaction.atomic():
                user = users.objects.create_user(username, email)
        except IntegrityError:
            raise Conflict("this name is taken", field="username") from None
        made = Membership.objects.create(tenant=tenant, user=user, role=role, team=team)
    return members(tenant.pk).get(pk=made.pk)


def change_member(tenant_id: int, member_id: UUID, data: Any) -> Membership:
    """Change role, team or address; ``Conflict`` when no owner would be left. Keys follow the role at once."""
    faults = Faults()
    fields = check_fields(data, MEMBER_FIELDS[1:], faults)
    role = faults.of(_role_of, fields["role"]) if "role" in fields else None
    team = faults.of(_team_of, tenant_id, fields.get("team"))
    email = faults.of(_email_of, fields)
    faults.tell()
    if not fields:
        raise InvalidInput("give at least one field to change")
    with transaction.atomic():
        lock_tenant(tenant_id)
        found = get_member(tenant_id, member_id)
        if role is not None:
            if role != Membership.Role.OWNER:
                _keep_an_owner(found)
            found.role = role
        if "team" in fields:
            found.team = team
        if "email" in fields:
            _change_email(found, email)
        found.save(update_fields=["role", "team"])
    return found


def _change_email(found: Membership, email: str) -> None:
    """Refuse users that belong to other tenants too: their addresses are not this tenant's to change."""
    if not _is_its_own(found):
        raise Conflict("this user belongs to others too; its address is not yours to change", field="email")
    found.user.email = email
    found.user.save(update_fields=["email"])


def remove_member(tenant_id: int, member_id: UUID) -> None:
    """Remove a user with its keys; ``Conflict`` for the last owner. A user of this tenant alone goes altogether."""
    with transaction.atomic():
        lock_tenant(tenant_id)
        found = get_member(tenant_id, member_id)
        _keep_an_owner(found)
        if _is_its_own(found):
            found.user.delete()
        else:
            found.delete()


def invite(tenant_id: int, member_id: UUID) -> Any:
    """The user to whom its tenant may give a link to a password; ``Conflict`` for one that has a way in, or belongs elsewhere."""
    found = get_member(tenant_id, member_id)
    if not _is_its_own(found) or found.user.identities.exists():
        raise Conflict("this user can log in already, or belongs to others too")
    return found.user


def _is_its_own(found: Membership) -> bool:
    """Whether the user was made for this tenant and belongs to nobody else."""
    user = found.user
    if user.is_staff or user.is_superuser or user.has_usable_password():
        return False
    return not Membership.objects.filter(user=user).exclude(pk=found.pk).exists()


def _keep_an_owner(found: Membership) -> None:
    if found.role != Membership.Role.OWNER:
        return
    others = Membership.objects.filter(tenant_id=found.tenant_id, role=Membership.Role.OWNER)
    if not others.exclude(pk=found.pk).exists():
        raise Conflict("it is the last owner; make another one first", field="role")


def lock_tenant(tenant_id: int) -> None:
    """Let changes of a tenant's people, tiers or webhooks follow one another: what they count or compare stays true."""
    list(Tenant.objects.select_for_update(no_key=True).filter(pk=tenant_id).values_list("pk", flat=True))
