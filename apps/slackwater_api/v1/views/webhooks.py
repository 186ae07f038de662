"""Webhooks: make, list, change, rotate, try, remove; the log of deliveries and their replay."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from slackwater_api.http.body import read_json
from slackwater_api.http.endpoint import MANAGE, READ, ApiView, created
from slackwater_api.http.openapi import NO_BODY, describe, request_example
from slackwater_api.http.sorting import BY_AGE, Column, PagedList, each, moment, whole
from slackwater_api.v1.filters import DeliveryFilter
from slackwater_api.v1.shapes import notify as shapes
from slackwater_api.v1.shapes.common import as_shape, listing
from slackwater_monitoring.models import Delivery, Subscription
from slackwater_monitoring.notify import subscriptions

EXAMPLE = {
    "url": "https://example.org/hooks/slackwater",
    "events": ["task.failed", "task.late"],
    "handlers": ["mail.*"],
}


def shown(row: Subscription) -> dict[str, Any]:
    """A webhook as clients see it, without its secret."""
    return as_shape(shapes.WebhookOut, row)


def _delivery(row: Delivery) -> dict[str, Any]:
    pending = row.state == Delivery.State.PENDING
    return as_shape(
        shapes.DeliveryOut,
        row,
        next_attempt_at=row.next_attempt_at if pending else None,
        payload=json.loads(row.payload),
        log=[
            {
                "at": datetime.fromtimestamp(entry["at"], UTC),
                "status": entry["status"],
                "error": entry["error"] or None,
                "duration_s": entry["ms"] / 1000,
            }
            for entry in row.log
        ],
    )


WEBHOOKS = PagedList(
    present=each(shown),
    columns={"created_at": BY_AGE, "updated_at": Column("updated_at", moment), "url": Column("url", may_lack=True)},
    default="-created_at",
)
LOG = PagedList(
    present=each(_delivery),
    filters=DeliveryFilter,
    columns={"created_at": BY_AGE, "attempts": Column("attempts", whole)},
    default="-created_at",
)


class Webhooks(ApiView, path="webhooks", tag="webhooks"):
    @describe(
        "create_webhook",
        "Create a webhook, or a subscription by e-mail",
        MANAGE,
        {201: shapes.WebhookMade},
        body=shapes.WebhookIn,
        problems=(409,),
        examples=[
            request_example("failures", EXAMPLE),
            request_example("by e-mail", {"channel": "email", "events": ["task.dead_lettered"]}),
        ],
    )
    def post(self, request: Request) -> Response:
        """Store it; the answer shows its secret, once."""
        made = subscriptions.create(self.tenant, read_json(request._request), actor=self.actor)
        body = {**shown(made.subscription), "secret": made.secret or None}
        return created(body, f"/api/v1/webhooks/{made.subscription.pk}")

    @describe(
        "list_webhooks", "List webhooks, newest first", READ, {200: listing(shapes.WebhookOut)}, *WEBHOOKS.parameters
    )
    def get(self, request: Request) -> Response:
        return Response(WEBHOOKS.page(request.query_params, Subscription.objects.all()))


class OneWebhook(ApiView, path="webhooks/<uuid:webhook_id>", tag="webhooks"):
    @describe("get_webhook", "Get a webhook", READ, {200: shapes.WebhookOut})
    def get(self, request: Request, webhook_id: UUID) -> Response:
        return Response(shown(subscriptions.get(self.tenant.pk, webhook_id)))

    @describe(
        "change_webhook",
        "Change, disable or enable a webhook",
        MANAGE,
        {200: shapes.WebhookOut},
        body=shapes.WebhookChange,
        conditional=True,
        problems=(409,),
        examples=[request_example("disable", {"enabled": False})],
    )
    def patch(self, request: Request, webhook_id: UUID) -> Response:
        """Change fields; what waits goes to the new address."""
        changes = read_json(request._request)
        with self.unchanged(Subscription.objects.filter(pk=webhook_id)):
            changed = subscriptions.change(self.tenant.pk, webhook_id, changes)
        return Response(shown(changed))

    @describe("delete_webhook", "Remove a webhook", MANAGE, {204: None}, conditional=True)
    def delete(self, request: Request, webhook_id: UUID) -> Response:
        """Remove it with its log; what waits is not sent."""
        with self.unchanged(Subscription.objects.filter(pk=webhook_id)):
            subscriptions.delete(self.tenant.pk, webhook_id)
        return Response(status=204)


class RotateWebhook(ApiView, path="webhooks/<uuid:webhook_id>/rotate", tag="webhooks"):
    @describe(
        "rotate_webhook_secret",
        "Give a webhook a new secret",
        MANAGE,
        {200: shapes.WebhookMade},
        body=NO_BODY,
        problems=(409,),
    )
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """The answer shows it, once; the old one signs beside it for a day."""
        made = subscriptions.rotate(self.tenant.pk, webhook_id)
        return Response({**shown(made.subscription), "secret": made.secret or None})


class PingWebhook(ApiView, path="webhooks/<uuid:webhook_id>/ping", tag="webhooks"):
    @describe("ping_webhook", "Send a test message", MANAGE, {202: shapes.DeliveryOut}, body=NO_BODY, problems=(409,))
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """It is sent within a second; the log tells what became of it."""
        return Response(_delivery(subscriptions.ping(self.tenant.pk, webhook_id)), status=202)


class WebhookDeliveries(ApiView, path="webhooks/<uuid:webhook_id>/deliveries", tag="webhooks"):
    @describe(
        "list_webhook_deliveries",
        "List a webhook's deliveries",
        READ,
        {200: listing(shapes.DeliveryOut)},
        *LOG.parameters,
    )
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """A page of its deliveries, newest first; they are kept for 30 days."""
        return Response(LOG.page(request.query_params, subscriptions.deliveries(self.tenant.pk, webhook_id)))


class ReplayDelivery(ApiView, path="webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/replay", tag="webhooks"):
    @describe(
        "replay_webhook_delivery",
        "Send a delivery again",
        MANAGE,
        {202: shapes.DeliveryOut},
        body=NO_BODY,
        problems=(409,),
    )
    def post(self, request: Request, webhook_id: UUID, delivery_id: UUID) -> Response:
        """Now, with the same id and content; its attempts begin anew."""
        delivery = subscriptions.replay(self.tenant.pk, webhook_id, delivery_id)
        return Response(_delivery(delivery), status=202)
