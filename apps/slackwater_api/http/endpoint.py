"""The base of every endpoint: authenticate, check the scope, enter the tenant, answer in JSON, problems included.

It keeps the shape of DRF's dispatch, with one renderer, one parser, no negotiation and no throttles.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, cast
from urllib.parse import unquote_plus

import structlog
import uuid_utils
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.utils.cache import patch_cache_control
from drf_spectacular.utils import extend_schema
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http import cors
from slackwater_api.http.auth import BearerAuthentication, Principal
from slackwater_api.http.blotting import blotted, refuse_hidden
from slackwater_api.http.body import read_object
from slackwater_api.http.once import REPLAYED, as_first, idempotency_key, made_once
from slackwater_api.http.operation import QUOTE, Operation, answer, asks_quote, unchanged
from slackwater_api.http.problems import RATE_POLICY, WAITING_POLICY, MethodNotAllowed, as_response, problem
from slackwater_tasks.explain.quote import quote
from slackwater_tasks.submission import limits
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_scope

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
READ, SUBMIT, CANCEL, MANAGE, OPERATE, ANY = "read", "submit", "cancel", "manage", "operate", "any"


class OneRenderer(BaseContentNegotiation):
    """Every answer is JSON, whatever the client says it would rather have."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> tuple[Any, str]:
        return renderers[0], renderers[0].media_type


def request_id_of(given: str) -> str:
    """The client's ``X-Request-Id`` where it is a plain word, else a new one."""
    return given if REQUEST_ID.fullmatch(given) else str(uuid_utils.uuid7())


def told_left(left: limits.Left | None) -> dict[str, str]:
    """The headers that tell what is left of the limits after a submission; none where nothing was counted."""
    if left is None:
        return {}
    plan, soon = left.plan, max(1, math.ceil(left.more_in_s))
    rate = RATE_POLICY.format(plan.burst, limits.window_s(plan.burst, plan.tasks_per_hour))
    return {
        "RateLimit": f'"submissions";r={left.rate};t={soon}, "waiting";r={left.waiting}',
        "RateLimit-Policy": f"{rate}, {WAITING_POLICY.format(plan.max_waiting)}",
    }


def check_query(request: HttpRequest) -> None:
    """Refuse query strings with characters that PostgreSQL cannot store."""
    raw = request.META.get("QUERY_STRING", "")
    if "%" not in raw and raw.isascii():
        return
    for part in raw.split("&"):
        name, _, value = part.partition("=")
        text = unquote_plus(value, errors="surrogateescape")
        shown = unquote_plus(name)[:60]
        if "\x00" in text or "\x00" in shown:
            raise InvalidInput("must not contain the NUL character", field=shown.replace("\x00", "") or None)
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise InvalidInput("is not valid UTF-8", field=shown or None)


class PublicView(APIView):
    """An endpoint without a key."""

    authentication_classes = []
    permission_classes = []
    throttle_classes = []
    renderer_classes = [JSONRenderer]
    content_negotiation_class = OneRenderer
    metadata_class = None
    request_id = ""
    array = ""
    """What faults call the body, where that is an array."""
    format_kwarg = None

    def enter(self, request: Request) -> Any:
        """The context in which the handler runs."""
        return nullcontext()

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer a request; whatever goes wrong becomes a problem with the request's id."""
        if request.method == "OPTIONS" and (asked := cors.preflight(request)) is not None:
            return asked
        self.args, self.kwargs = args, kwargs
        self.headers = {}
        self.request_id = request_id_of(request.META.get("HTTP_X_REQUEST_ID", ""))
        # Both go when the request ends: the thread that served it serves another tenant next.
        with structlog.contextvars.bound_contextvars(request_id=self.request_id, tenant=None):
            self.request = wrapped = self.initialize_request(request, *args, **kwargs)
            negotiated = self.perform_content_negotiation(wrapped)
            wrapped.accepted_renderer, wrapped.accepted_media_type = negotiated
            try:
                check_query(request)
                with self.enter(wrapped):
                    response = self.respond(wrapped, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 (the boundary: every error becomes a problem, and is logged)
                elsewhere = {*request.GET, *kwargs} if request.method in {"POST", "PATCH", "PUT"} else None
                response = as_response(problem(error, self.request_id, elsewhere, self.array))
                vars(response)["_has_been_logged"] = True  # Django would log each refusal of a client as a warning
            self.response = self.finalize_response(wrapped, cast("Response", response), *args, **kwargs)
        self.response["X-Request-Id"] = self.request_id
        if self.response.has_header("ETag"):
            patch_cache_control(self.response, private=True, no_cache=True)
        else:
            patch_cache_control(self.response, no_store=True)
        principal = vars(self.request).get("_user")
        if isinstance(principal, Principal) and principal.key.origins:
            cors.share(request, self.response, principal.key)
        return self.response

    def respond(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """The handler's answer as it is sent."""
        found: HttpResponseBase = self.handler(request)(request, *args, **kwargs)
        return found

    def handler(self, request: Request) -> Any:
        """The method that answers this request."""
        name = (request.method or "").lower()
        if name not in self.http_method_names or name == "options":
            return self.http_method_not_allowed
        return getattr(self, name, self.http_method_not_allowed)

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """405, with the methods there are."""
        there = [name.upper() for name in self.http_method_names if hasattr(self, name) and name != "options"]
        raise MethodNotAllowed(str(request.method)[:20], there)


class ApiView(PublicView):
    """An endpoint of a tenant; ``describe`` says of each method what it needs and takes."""

    authentication_classes = [BearerAuthentication]
    operation: Operation | None = None
    path = ""
    """Its address below ``/api/v1/``; empty for a base of others."""
    get: Callable[..., Any]

    def __init_subclass__(cls, *, path: str = "", tag: str = "", **more: Any) -> None:
        """``path``: its address, as Django's ``path`` takes it. ``tag``: its group in the OpenAPI document."""
        super().__init_subclass__(**more)
        cls.path = path
        for method in vars(cls).values():
            if isinstance(getattr(method, "operation", None), Operation):
                extend_schema(tags=[tag])(method)

    def enter(self, request: Request) -> Any:
        """Authenticate, check the scope, and enter the tenant: nothing of another tenant exists inside."""
        principal = cast("Principal", request.user)
        self.operation = getattr(super().handler(request), "operation", None)
        if self.operation is not None and self.operation.scope != ANY:
            principal.require(self.operation.scope)
        structlog.contextvars.bind_contextvars(tenant=principal.tenant.slug)
        return tenant_scope(principal.tenant.pk)

    def handler(self, request: Request) -> Any:
        """The method that answers, once every parameter of the query is known."""
        if self.operation is not None and request.META.get("QUERY_STRING"):
            self.operation.check(request.query_params)
            self.check_filters(request.query_params)
        if self.operation is not None and self.operation.takes_nothing:
            read_object(request._request)
        return super().handler(request)

    def respond(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """The answer; with an idempotency key the one that the first request got."""
        work = partial(self._respond, request, *args, **kwargs)
        if self.operation is not None and self.operation.quotes and asks_quote(request):
            idempotency_key(request)  # it is not kept, but a faulty one is a fault here too
            return Response(quote(self.tenant, lambda: dict(cast("Response", work()).data)), content_type=QUOTE)
        limits.noted.left.clear()
        if self.operation is None or not self.operation.keeps_answer:
            response = work()
        else:
            key = idempotency_key(request)
            response = work() if key is None else made_once(self.tenant, request._request, key, work)
        if type(response) is Response and request.method == "POST" and "HTTP_IDEMPOTENCY_KEY" in request.META:
            as_first(response)
        for name, value in told_left(limits.left_of(self.tenant.pk)).items():
            response[name] = value
        return response

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """The answer, whatever it is, which tells where its operation is to go."""
        found = super().finalize_response(request, response, *args, **kwargs)
        if self.operation is not None and self.operation.deprecated is not None:
            self.operation.deprecated.tell(found)
        return found

    def _respond(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """An answer with its ETag, sorted and narrowed as asked."""
        response = super().respond(request, *args, **kwargs)
        if type(response) is Response and not self.principal.may(SUBMIT):
            response.data = blotted(response.data)
        if self.operation is None or type(response) is not Response or response.status_code != 200:
            return response
        if request.method in {"POST", "PUT"}:
            return response
        return answer(self.operation, request, response)

    def check_filters(self, query: Mapping[str, Any]) -> None:
        """``NotPermitted`` names a filter by what is blotted out for this client."""
        if not self.principal.may(SUBMIT):
            refuse_hidden(query)

    @property
    def principal(self) -> Principal:
        """The authenticated client."""
        return cast("Principal", self.request.user)

    @property
    def tenant(self) -> Tenant:
        """The client's tenant, with its plan."""
        return self.principal.tenant

    @property
    def actor(self) -> str:
        """How history names the client."""
        return self.principal.actor

    def unchanged(self, rows: QuerySet[Any]) -> AbstractContextManager[None]:
        """Do what follows only if what ``GET`` answers here is what ``If-Match`` names; ``rows`` are locked first."""
        return unchanged(self.request, rows, lambda: self.get(self.request, **self.kwargs).data)


def created(body: dict[str, Any], location: str, *, new: bool = True, first: bool = True) -> Response:
    """201 with ``Location``; 200 where it was there (``new``), or an idempotency key returned the ``first`` answer."""
    headers = {"Location": location, **({} if first else REPLAYED)}
    return Response(body, status=201 if new and first else 200, headers=headers)
