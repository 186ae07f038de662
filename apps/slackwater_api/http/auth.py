"""API keys as DRF's authentication, remembered for a second so that a busy client costs no query per request."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from scheduler_ext.core.errors import NotAuthenticated, NotPermitted
from slackwater_tenants import services, tickets
from slackwater_tenants.members import ROLE_SCOPES
from slackwater_tenants.models import ApiKey, Tenant

CACHE_TTL_S = 1.0
"""A revoked key, or a changed plan or role, is noticed this long after at most."""
SEEN_S = 60.0
"""For this long after that, a request's body is read before its key is checked again."""
MAX_CACHED = 10_000
MAX_KEY = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The authenticated client: a key of a tenant."""

    key: ApiKey
    scopes: frozenset[str]

    @classmethod
    def of(cls, key: ApiKey) -> Principal:
        """The principal of a key: with its scopes, within its member's role."""
        scopes = frozenset(key.scopes)
        return cls(key=key, scopes=scopes & ROLE_SCOPES[key.member.role] if key.member is not None else scopes)

    is_authenticated = True
    """The attribute that Django and DRF read of a user."""

    @property
    def tenant(self) -> Tenant:
        """The tenant, with its plan."""
        return self.key.tenant

    @property
    def actor(self) -> str:
        """How history names it."""
        return f"key:{self.key.prefix}"

    def may(self, scope: str) -> bool:
        """Whether the key has the scope; ``manage`` includes the tenant's others, not ``operate``."""
        included = scope != ApiKey.Scope.OPERATE and ApiKey.Scope.MANAGE in self.scopes
        return scope in self.scopes or included

    def require(self, scope: str) -> None:
        """``NotPermitted`` unless the key has the scope."""
        if not self.may(scope):
            raise NotPermitted(f"This key lacks the scope {scope!r}.", scope=scope)


class Remembered:
    """Keys found within the last second, by the hash of their text; the text itself is not kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[bytes, tuple[float, Principal]] = {}

    def known(self, header: str) -> Principal | None:
        """The principal of an ``Authorization`` header, if it is cached; reads no database."""
        scheme, _, text = header.partition(" ")
        return self._lately(_digest(text.strip())) if scheme.lower() == "bearer" else None

    def seen(self, header: str) -> bool:
        """Whether the key of a header was valid a minute ago; it is checked again before anything is done."""
        entry = self._found.get(_digest(header.partition(" ")[2].strip()))
        return entry is not None and entry[0] + SEEN_S > time.monotonic()

    def _lately(self, digest: bytes) -> Principal | None:
        entry = self._found.get(digest)
        if entry is None or entry[0] <= time.monotonic() or _expired(entry[1].key):
            return None
        return entry[1]

    def principal(self, text: str) -> Principal:
        """The principal of a key; ``NotAuthenticated`` if there is none."""
        digest, now = _digest(text), time.monotonic()
        lately = self._lately(digest)
        if lately is not None:
            return lately
        before = self._found.get(digest)
        if before is not None and not _expired(before[1].key) and services.is_unchanged(before[1].key):
            principal = before[1]
        else:
            principal = Principal.of(services.authenticate(text))
        with self._lock:
            if len(self._found) >= MAX_CACHED:
                self._found.clear()
            self._found[digest] = (now + CACHE_TTL_S, principal)
        return principal

    def forget(self) -> None:
        """Forget all keys: a key, a role or a tenant has changed."""
        with self._lock:
            self._found.clear()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _expired(key: ApiKey) -> bool:
    return key.expires_at is not None and key.expires_at <= timezone.now()


remembered = Remembered()


def principal_of(header: str) -> Principal:
    """The principal of an ``Authorization`` header; ``NotAuthenticated`` says what is wrong with it."""
    return remembered.principal(key_text(header))


def key_text(header: str) -> str:
    """The key in an ``Authorization`` header; ``NotAuthenticated`` for what no key can be. Reads no database."""
    if not header:
        raise NotAuthenticated("Send your API key in the header: Authorization: Bearer KEY")
    scheme, _, text = header.partition(" ")
    text = text.strip()
    if scheme.lower() != "bearer" or not text:
        raise NotAuthenticated("The Authorization header must read: Bearer KEY")
    # What no key can be is refused before the database sees it: it could not even store some of it.
    if len(text) > MAX_KEY or not text.isascii() or not text.isprintable():
        raise NotAuthenticated
    return text


class TicketOrKey(BaseAuthentication):
    """A key in the header or, without one, a ticket in the address: for live streams."""

    def authenticate(self, request: Request) -> tuple[Principal, ApiKey]:
        """The principal; ``request.auth`` is the key, also where a ticket stood for it."""
        text = request.query_params.get("ticket")
        key = tickets.redeem(text, request.path) if text and not request.META.get("HTTP_AUTHORIZATION") else None
        return (Principal.of(key), key) if key is not None else BearerAuthentication().authenticate(request)

    def authenticate_header(self, request: Request) -> str:
        """The challenge of a 401."""
        return BearerAuthentication().authenticate_header(request)


class BearerAuthentication(BaseAuthentication):
    """``Authorization: Bearer KEY``."""

    def authenticate(self, request: Request) -> tuple[Principal, ApiKey]:
        """The principal, which views find in ``request.user``."""
        principal = principal_of(request.META.get("HTTP_AUTHORIZATION", ""))
        return principal, principal.key

    def authenticate_header(self, request: Request) -> str:
        """The challenge of a 401."""
        return 'Bearer realm="slackwater"'


class BearerScheme(OpenApiAuthenticationExtension):
    """How OpenAPI describes it."""

    target_class = "slackwater_api.http.auth.BearerAuthentication"
    name: Any = "apiKey"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "An API key of your tenant, as shown once."}


class TicketScheme(BearerScheme):
    """The same component for streams; that a ticket does as well is said of its parameter."""

    target_class = "slackwater_api.http.auth.TicketOrKey"
    name: Any = []

    def get_security_requirement(self, auto_schema: object) -> dict[str, list[Any]]:
        return {BearerScheme.name: []}
