"""Keys of the tenant and of its users: list, make, rotate, revoke."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http import cors
from slackwater_api.http.auth import remembered
from slackwater_api.http.body import read_json, read_object
from slackwater_api.http.endpoint import MANAGE, ApiView, created
from slackwater_api.http.openapi import describe, request_example
from slackwater_api.http.operation import unchanged
from slackwater_api.http.sorting import Column, PagedList, each, moment
from slackwater_api.v1.shapes import organization as shapes
from slackwater_api.v1.shapes.common import as_shape, listing
from slackwater_tenants import keys
from slackwater_tenants.models import ApiKey


def _shown(row: ApiKey) -> dict[str, Any]:
    member = row.member.public_id if row.member else None
    return as_shape(shapes.KeyOut, row, id=row.prefix, member_id=member)


KEYS = PagedList(
    present=each(_shown),
    columns={
        "created_at": Column("created_at", moment),
        "name": Column("name"),
        "last_used_at": Column("last_used_at", moment, may_lack=True),
    },
    default="-created_at",
    tie=Column("prefix", item="id"),
)


class Keys(ApiView, path="keys", tag="organisation"):
    @describe(
        "list_keys",
        "List keys, newest first",
        MANAGE,
        {200: listing(shapes.KeyOut)},
        OpenApiParameter("member_id", OpenApiTypes.UUID, description="Only this member's."),
        *KEYS.parameters,
    )
    def get(self, request: Request) -> Response:
        """A page of the keys, those that are revoked or expired included."""
        query, rows = request.query_params, keys.keys(self.tenant.pk)
        if "member_id" in query:
            try:
                rows = rows.filter(member__public_id=UUID(query["member_id"]))
            except ValueError:
                raise InvalidInput("must be the id of a member", field="member_id") from None
        return Response(KEYS.page(query, rows))

    @describe(
        "create_key",
        "Create a key of the organisation or of a user",
        MANAGE,
        {201: shapes.KeyMade},
        body=shapes.KeyIn,
        examples=[request_example("for a machine", {"name": "nightly import", "scopes": ["submit", "read"]})],
    )
    def post(self, request: Request) -> Response:
        """The answer shows it, once."""
        made, text = keys.make_key(self.tenant, read_json(request._request))
        cors.known.forget()
        return created({**_shown(made), "key": text}, f"/api/v1/keys/{made.prefix}")


class OneKey(ApiView, path="keys/<str:key_id>", tag="organisation"):
    @describe("get_key", "Get a key", MANAGE, {200: shapes.KeyOut})
    def get(self, request: Request, key_id: str) -> Response:
        return Response(_shown(keys.get_key(self.tenant.pk, key_id)))

    @describe("revoke_key", "Revoke a key", MANAGE, {204: None}, conditional=True)
    def delete(self, request: Request, key_id: str) -> Response:
        """It is refused within a second; what it did stays readable."""
        with self.unchanged(keys.keys(self.tenant.pk).filter(prefix=key_id)):
            keys.revoke_key(self.tenant.pk, key_id)
        remembered.forget()
        return Response(status=204)


class RotateKey(ApiView, path="keys/<str:key_id>/rotate", tag="organisation"):
    @describe(
        "rotate_key",
        "Replace a key",
        MANAGE,
        {201: shapes.KeyMade},
        problems=(409,),
        body=shapes.KeyRotation,
        conditional=True,
        examples=[request_example("an hour for both", {"overlap_s": 3600})],
    )
    def post(self, request: Request, key_id: str) -> Response:
        """The same name, scopes, member and expiry; the answer shows it, once. The old one ends after the overlap."""
        data = read_object(request._request, "overlap_s")
        tenant_id = self.tenant.pk
        rows = keys.keys(tenant_id).filter(prefix=key_id)
        with unchanged(request, rows, lambda: _shown(keys.get_key(tenant_id, key_id))):
            made, text = keys.rotate_key(tenant_id, key_id, data)
        remembered.forget()
        return created({**_shown(made), "key": text}, f"/api/v1/keys/{made.prefix}")
