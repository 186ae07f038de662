"""Keys of the tenant and of its users: list, make, rotate, revoke."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http.auth import remembered
from slackwater_api.http.body import read_json, read_object
from slackwater_api.http.endpoint import MANAGE, ApiView, created
from slackwater_api.http.openapi import PAGING, describe, request_example
from slackwater_api.http.operation import unchanged
from slackwater_api.http.sorting import Column, Sorting, moment, whole
from slackwater_api.v1.shapes import organization as shapes
from slackwater_api.v1.shapes.common import listing
from slackwater_tenants import keys
from slackwater_tenants.models import ApiKey

KEY = OpenApiParameter("key_id", OpenApiTypes.INT64, OpenApiParameter.PATH, description="The key's id.")
SORT = Sorting(
    columns={
        "created_at": Column("id", whole, "id"),
        "name": Column("name"),
        "last_used_at": Column("last_used_at", moment, may_lack=True),
    },
    default="-created_at",
    tie=Column("id", whole, "id"),
)
SHOWN = ("name", "prefix", "scopes", "created_at", "expires_at", "revoked_at", "last_used_at")


def _shown(row: ApiKey) -> dict[str, Any]:
    return {"id": row.pk, **{name: getattr(row, name) for name in SHOWN}, "member": row.member_id}


def _unchanged(request: Request, tenant_id: int, key_id: int) -> AbstractContextManager[None]:
    rows = keys.keys(tenant_id).filter(pk=keys.get_key(tenant_id, key_id).pk)
    return unchanged(request, rows, lambda: _shown(keys.get_key(tenant_id, key_id)))


class Keys(ApiView):
    """``/api/v1/keys``"""

    scopes = {"GET": MANAGE, "POST": MANAGE}

    @describe(
        "list_keys",
        summary="List keys, newest first",
        tag="organisation",
        scope=MANAGE,
        answers={200: listing(shapes.KeyOut)},
        parameters=[
            OpenApiParameter("member", {"type": "integer", "minimum": 0}, description="Only this member's."),
            SORT.parameter,
            *PAGING,
        ],
    )
    def get(self, request: Request) -> Response:
        """A page of the keys, those that are revoked or expired included."""
        query, rows = request._request.GET, keys.keys(self.principal.tenant.pk)
        if "member" in query:
            text = str(query["member"])
            if not (text.isascii() and text.isdigit() and len(text) < 19):
                raise InvalidInput("must be the id of a member", field="member")
            rows = rows.filter(member_id=int(text))
        return Response(SORT.page(query, rows, lambda some: [_shown(row) for row in some]))

    @describe(
        "create_key",
        summary="Make a key, of the organisation or of a user",
        tag="organisation",
        scope=MANAGE,
        body=shapes.KeyIn,
        answers={201: shapes.KeyMade},
        problems=(429,),
        examples=[request_example("for a machine", {"name": "nightly import", "scopes": ["submit", "read"]})],
    )
    def post(self, request: Request) -> Response:
        """The answer shows it, once."""
        made, text = keys.make_key(self.principal.tenant, read_json(request._request))
        return created({**_shown(made), "key": text}, f"/api/v1/keys/{made.pk}", new=True)


class OneKey(ApiView):
    """``/api/v1/keys/{id}``"""

    scopes = {"GET": MANAGE, "DELETE": MANAGE}

    @describe(
        "get_key",
        summary="Look at a key",
        tag="organisation",
        scope=MANAGE,
        answers={200: shapes.KeyOut},
        problems=(404,),
        parameters=[KEY],
    )
    def get(self, request: Request, key_id: int) -> Response:
        """One key, without its secret."""
        return Response(_shown(keys.get_key(self.principal.tenant.pk, key_id)))

    @describe(
        "revoke_key",
        summary="Revoke a key",
        tag="organisation",
        scope=MANAGE,
        answers={204: None},
        problems=(404,),
        parameters=[KEY],
        conditional=True,
    )
    def delete(self, request: Request, key_id: int) -> Response:
        """It is refused within a second; what it did stays readable."""
        with _unchanged(request, self.principal.tenant.pk, key_id):
            keys.revoke_key(self.principal.tenant.pk, key_id)
        remembered.forget()
        return Response(status=204)


class RotateKey(ApiView):
    """``/api/v1/keys/{id}/rotate``"""

    scopes = {"POST": MANAGE}

    @describe(
        "rotate_key",
        summary="Put another key in the place of one",
        tag="organisation",
        scope=MANAGE,
        body=shapes.KeyRotation,
        answers={201: shapes.KeyMade},
        problems=(404, 409),
        parameters=[KEY],
        conditional=True,
        examples=[request_example("an hour for both", {"overlap_s": 3600})],
    )
    def post(self, request: Request, key_id: int) -> Response:
        """The same name, scopes, member and expiry; the answer shows it, once. The old one ends after the overlap."""
        data = read_object(request._request)
        tenant_id = self.principal.tenant.pk
        with _unchanged(request, tenant_id, key_id):
            made, text = keys.rotate_key(tenant_id, key_id, data)
        remembered.forget()
        return created({**_shown(made), "key": text}, f"/api/v1/keys/{made.pk}", new=True)
