"""Secrets of the tenant: list, look at, put, forget; their values are never shown."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import NotFound
from slackwater_api.http.body import read_fields
from slackwater_api.http.endpoint import MANAGE, READ, ApiView, created
from slackwater_api.http.openapi import describe, request_example
from slackwater_api.http.operation import unchanged
from slackwater_api.http.problems import PreconditionFailed
from slackwater_api.v1.shapes import graphs as shapes
from slackwater_api.v1.shapes.common import listing
from slackwater_tasks.control import secrets


def _there(name: str) -> dict[str, object]:
    """The secret as GET shows it; one that is not there is not what ``If-Match`` names."""
    try:
        return secrets.shown(name)
    except NotFound:
        raise PreconditionFailed from None


class Secrets(ApiView, path="secrets", tag="secrets"):
    @describe("list_secrets", "List secrets, without their values", READ, {200: listing(shapes.SecretOut)})
    def get(self, request: Request) -> Response:
        return Response({"items": secrets.names()})

    @describe(
        "put_secret",
        "Store or replace a secret",
        MANAGE,
        {201: shapes.SecretOut, 200: shapes.SecretOut},
        body=shapes.SecretIn,
        conditional=True,
        examples=[request_example("a key of yours", {"name": "MAIL_KEY", "value": "s3cret-of-mine"})],
    )
    def post(self, request: Request) -> Response:
        """Keep a value for the tenant's own tasks; nobody can read it back. ``If-Match``: only replace."""
        data = read_fields(request._request, "name", "value")
        name = data["name"] if isinstance(data.get("name"), str) else ""
        with unchanged(request, secrets.rows(name), lambda: _there(name)):
            new = secrets.put(self.tenant, name, data.get("value"), actor=self.actor)
        return created(secrets.shown(name), f"/api/v1/secrets/{name}", new=new)


class OneSecret(ApiView, path="secrets/<str:secret_name>", tag="secrets"):
    @describe("get_secret", "Get a secret, without its value", READ, {200: shapes.SecretOut})
    def get(self, request: Request, secret_name: str) -> Response:
        """Its name, and who stored it when."""
        return Response(secrets.shown(secret_name))

    @describe("delete_secret", "Delete a secret", MANAGE, {204: None}, conditional=True)
    def delete(self, request: Request, secret_name: str) -> Response:
        """Delete it; tasks that ask for it from now on fail."""
        with self.unchanged(secrets.rows(secret_name)):
            secrets.remove(secret_name)
        return Response(status=204)
