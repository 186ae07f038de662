"""Who comes by a provider: the user behind an identity, and the roles that its groups give. Only claims come in here."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import structlog
from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction

from slackwater_api.http.auth import remembered
from slackwater_conf import conf
from slackwater_console.person import ROLES
from slackwater_tenants.models import Identity, Membership, Tenant

if TYPE_CHECKING:
    from django.contrib.auth.models import User

log = structlog.get_logger(__name__)
RANKS = list(ROLES)
"""The words for roles, the least first."""
NO_NAME = re.compile(r"[^\w.@+-]+")


def roles_of(groups: Iterable[str]) -> dict[str, str]:
    """By tenant the highest role that somebody's groups give, as the setting has it."""
    found: dict[str, str] = {}
    for group in groups:
        for slug, word in conf().oidc_roles.get(group, {}).items():
            found[slug] = max(found.get(slug, word), word, key=RANKS.index)
    return found


def user_of(issuer: str, claims: Mapping[str, Any], groups: Iterable[str]) -> User | None:
    """The user of an identity, made when its groups give it a role; ``None`` for who belongs to no tenant.

    An identity that comes for the first time may be a member already: one without a password or another identity, made under
    the address that the provider vouches for. Nobody of the platform's staff is ever found so.
    """
    subject, roles = str(claims["sub"])[:255], roles_of(groups)
    identity = Identity.objects.filter(issuer=issuer, subject=subject).select_related("user").first()
    user = identity.user if identity else _expected(claims)
    if user is None and not roles:
        return None
    try:
        with transaction.atomic():
            if user is None:
                user = get_user_model().objects.create_user(_name_of(claims), str(claims.get("email") or "")[:254])
            if identity is None:
                Identity.objects.create(user=user, issuer=issuer, subject=subject)
            _give(user, roles)
    except IntegrityError:  # it came twice at once, and the other one was quicker
        return user_of(issuer, claims, groups)
    member = user.is_active and Membership.objects.filter(user=user).exists()
    return user if member else None


def _expected(claims: Mapping[str, Any]) -> User | None:
    """A member that was made for somebody's address, and that nobody is yet."""
    address = str(claims.get("email") or "")
    if not address or claims.get("email_verified") is not True:
        return None
    rows = get_user_model().objects.filter(
        email__iexact=address, is_staff=False, is_superuser=False, identities=None, memberships__isnull=False
    )
    found = [user for user in rows.distinct()[:2] if not user.has_usable_password()]
    return found[0] if len(found) == 1 else None


def _name_of(claims: Mapping[str, Any]) -> str:
    """A name that nobody has: as the provider calls them, with something behind it where that is taken."""
    told = next((str(claims[name]) for name in ("preferred_username", "email", "sub") if claims.get(name)), "")
    name = NO_NAME.sub("-", told)[:120]
    taken = get_user_model().objects.filter(username__iexact=name).exists()
    return f"{name}-{secrets.token_hex(4)}" if taken else name


def _give(user: User, roles: Mapping[str, str]) -> None:
    """Make the user's memberships in the tenants that the setting names those that its groups give."""
    named = {slug for given in conf().oidc_roles.values() for slug in given}
    Membership.objects.filter(user=user, tenant__slug__in=named - roles.keys()).delete()
    tenants = {tenant.slug: tenant for tenant in Tenant.objects.filter(slug__in=roles)}
    for slug, word in roles.items():
        if slug in tenants:
            Membership.objects.update_or_create(user=user, tenant=tenants[slug], defaults={"role": ROLES[word]})
        else:
            log.warning("OIDC_ROLES names a tenant that there is not", tenant=slug)
    remembered.forget()
