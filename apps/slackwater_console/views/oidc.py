"""Coming in by a provider: OpenID Connect's code flow with PKCE and a nonce, as Authlib does it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import structlog
from django.contrib.auth import login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from slackwater_conf import conf
from slackwater_console.identities import user_of
from slackwater_console.views.login import BACKEND

log = structlog.get_logger(__name__)
NEXT: Final = "console_next"
SESSION_S: Final = 12 * 3_600
"""After this time the provider is asked again: what has changed there, a group left, holds from then on."""
TIMEOUT_S: Final = 10


class Unusable(Exception):
    """What the provider said cannot be used."""


@lru_cache(maxsize=4)
def _provider(issuer: str, client_id: str, secret: str, scopes: tuple[str, ...]) -> Any:
    """Authlib's client of the provider, which reads what it publishes of itself when it is first used."""
    from authlib.integrations.django_client import OAuth  # it takes a while, and most processes never use it

    how = {"scope": " ".join(scopes), "code_challenge_method": "S256", "default_timeout": TIMEOUT_S}
    where = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    return OAuth().register(
        "console", client_id=client_id, client_secret=secret, server_metadata_url=where, client_kwargs=how
    )


def provider() -> Any:
    """The provider of the settings; there is no such page without one."""
    found = conf()
    if not found.oidc_issuer:
        raise Http404
    return _provider(found.oidc_issuer, found.oidc_client_id, found.oidc_client_secret, found.oidc_scopes)


def _faults() -> tuple[type[Exception], ...]:
    """What goes wrong between here and there: all of it means that nobody comes in."""
    from authlib.common.errors import AuthlibBaseError
    from joserfc.errors import JoseError
    from requests import RequestException

    return AuthlibBaseError, JoseError, RequestException, Unusable, ValueError, RuntimeError, KeyError


def _refuse(request: HttpRequest, words: str) -> HttpResponse:
    context = {"title": "Log in", "refused": words, "oidc": True, "next": ""}
    return render(request, "slackwater_console/login.html", context, status=403)


@never_cache
@require_GET
def begin(request: HttpRequest) -> HttpResponse:
    """To the provider, and back to the page that was asked for."""
    wanted = request.GET.get("next", "")
    safe = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    client = provider()
    request.session[NEXT] = wanted if safe else ""
    back = conf().public_url + reverse("console:oidc_callback")
    try:
        found: HttpResponse = client.authorize_redirect(request, request.build_absolute_uri(back))
    except _faults() as error:
        log.warning("the provider cannot be asked", error=repr(error))
        return _refuse(request, "The provider cannot be reached: try again, or log in by password.")
    return found


def _claims(request: HttpRequest, client: Any) -> dict[str, Any]:
    """What the provider vouches for, its signature, issuer, audience, time and nonce checked; groups from where it tells them."""
    found = conf()
    issuer = str(client.load_server_metadata()["issuer"])
    if issuer.rstrip("/") != found.oidc_issuer.rstrip("/"):
        raise Unusable(f"it calls itself {issuer}")
    checked: dict[str, Any] = {name: {"essential": True} for name in ("sub", "exp", "iat", "nonce")}
    checked |= {"iss": {"essential": True, "value": issuer}, "aud": {"essential": True, "value": found.oidc_client_id}}
    token = client.authorize_access_token(request, claims_options=checked)
    claims = dict(token.get("userinfo") or {})
    if not claims.get("sub"):
        raise Unusable("it sent no token of an identity")
    if found.oidc_groups_claim not in claims and "userinfo_endpoint" in client.server_metadata:
        told = dict(client.userinfo(token=token))
        if told.get("sub") == claims["sub"]:
            claims = {**told, **claims}
    return claims


@never_cache
@require_GET
def callback(request: HttpRequest) -> HttpResponse:
    """Back from the provider: in, if it says who it is and that is a member."""
    client = provider()
    try:
        claims = _claims(request, client)
    except _faults() as error:
        log.warning("a login by the provider was refused", error=repr(error))
        return _refuse(request, "The provider did not confirm who you are: try again.")
    groups = claims.get(conf().oidc_groups_claim) or []
    names = [name for name in (groups if isinstance(groups, list) else [groups]) if isinstance(name, str)]
    user = user_of(conf().oidc_issuer, claims, names)
    if user is None:
        log.warning("somebody without a tenant came by the provider", subject=claims["sub"])
        return _refuse(request, "You belong to no organisation here: an admin of yours can make you a member.")
    wanted = request.session.pop(NEXT, "")
    login(request, user, backend=BACKEND)
    request.session.set_expiry(SESSION_S)
    return redirect(wanted or "console:home")
