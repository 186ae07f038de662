"""Webhooks: make, list, change, rotate, try, remove; the log of deliveries and their replay."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from slackwater_api.http.body import read_json, read_object
from slackwater_api.http.endpoint import MANAGE, READ, ApiView, created
from slackwater_api.http.openapi import PAGING, describe, path_id, request_example
from slackwater_api.http.operation import unchanged
from slackwater_api.http.sorting import BY_AGE, Column, Sorting, moment, whole
from slackwater_api.v1.filters import DeliveryFilter
from slackwater_api.v1.shapes import notify as shapes
from slackwater_api.v1.shapes.common import listing
from slackwater_monitoring.models import Delivery, Subscription
from slackwater_monitoring.notify import subscriptions

ID = path_id("webhook_id", "webhook")
DELIVERY = path_id("delivery_id", "delivery")
SHOWN = (
    "channel", "url", "events", "tags", "handlers", "description", "enabled", "disabled_reason", "failing_since",
    "created_at", "updated_at",
)  # fmt: skip
SORT = Sorting(
    columns={"created_at": BY_AGE, "updated_at": Column("updated_at", moment), "url": Column("url")},
    default="-created_at",
)
LOG = Sorting(columns={"created_at": BY_AGE, "attempts": Column("attempts", whole)}, default="-created_at")
EXAMPLE = {
    "url": "https://example.org/hooks/slackwater",
    "events": ["task.failed", "task.late"],
    "handlers": ["mail.*"],
}


def shown(row: Subscription) -> dict[str, Any]:
    """A webhook as clients see it, without its secret."""
    return {"id": row.pk, **{name: getattr(row, name) for name in SHOWN}}


def _delivery(row: Delivery) -> dict[str, Any]:
    pending = row.state == Delivery.State.PENDING
    return {
        "id": row.pk, "event": row.event, "task_id": row.task_id, "state": row.state, "attempts": row.attempts,
        "created_at": row.created_at, "next_attempt_at": row.next_attempt_at if pending else None,
        "delivered_at": row.delivered_at, "payload": json.loads(row.payload),
        "log": [{**entry, "at": datetime.fromtimestamp(entry["at"], UTC)} for entry in row.log],
    }  # fmt: skip


class Webhooks(ApiView):
    """``/api/v1/webhooks``"""

    scopes = {"POST": MANAGE, "GET": READ}

    @describe(
        "create_webhook",
        summary="Be told of events at an address of yours, or by e-mail",
        tag="webhooks",
        scope=MANAGE,
        body=shapes.WebhookIn,
        answers={201: shapes.WebhookMade},
        problems=(429,),
        examples=[
            request_example("failures", EXAMPLE),
            request_example("by e-mail", {"channel": "email", "events": ["task.dead_lettered"]}),
        ],
    )
    def post(self, request: Request) -> Response:
        """Store it; the answer shows its secret, once."""
        principal = self.principal
        made = subscriptions.create(principal.tenant, read_json(request._request), actor=principal.actor)
        body = {**shown(made.subscription), "secret": made.secret}
        return created(body, f"/api/v1/webhooks/{made.subscription.pk}", new=True)

    @describe(
        "list_webhooks",
        summary="List webhooks, newest first",
        tag="webhooks",
        scope=READ,
        answers={200: listing(shapes.WebhookOut)},
        parameters=[SORT.parameter, *PAGING],
    )
    def get(self, request: Request) -> Response:
        """A page of the tenant's webhooks."""
        rows = Subscription.objects.all()
        return Response(SORT.page(request._request.GET, rows, lambda some: [shown(row) for row in some]))


class OneWebhook(ApiView):
    """``/api/v1/webhooks/{id}``"""

    scopes = {"GET": READ, "PATCH": MANAGE, "DELETE": MANAGE}

    @describe(
        "get_webhook",
        summary="Look at a webhook",
        tag="webhooks",
        scope=READ,
        answers={200: shapes.WebhookOut},
        problems=(404,),
        parameters=[ID],
    )
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """One webhook."""
        return Response(shown(subscriptions.get(self.principal.tenant.pk, webhook_id)))

    @describe(
        "change_webhook",
        summary="Change, disable or enable a webhook",
        tag="webhooks",
        scope=MANAGE,
        body=shapes.WebhookChange,
        answers={200: shapes.WebhookOut},
        problems=(404,),
        parameters=[ID],
        conditional=True,
        examples=[request_example("disable", {"enabled": False})],
    )
    def patch(self, request: Request, webhook_id: UUID) -> Response:
        """Change fields; what waits goes to the new address."""
        changes = read_json(request._request)
        with self._unchanged(request, webhook_id):
            changed = subscriptions.change(self.principal.tenant.pk, webhook_id, changes)
        return Response(shown(changed))

    @describe(
        "delete_webhook",
        summary="Remove a webhook",
        tag="webhooks",
        scope=MANAGE,
        answers={204: None},
        problems=(404,),
        parameters=[ID],
        conditional=True,
    )
    def delete(self, request: Request, webhook_id: UUID) -> Response:
        """Remove it with its log; what waits is not sent."""
        with self._unchanged(request, webhook_id):
            subscriptions.delete(self.principal.tenant.pk, webhook_id)
        return Response(status=204)

    def _unchanged(self, request: Request, webhook_id: UUID) -> AbstractContextManager[None]:
        tenant_id = self.principal.tenant.pk
        rows = Subscription.objects.filter(pk=webhook_id)
        return unchanged(request, rows, lambda: shown(subscriptions.get(tenant_id, webhook_id)))


class RotateWebhook(ApiView):
    """``/api/v1/webhooks/{id}/rotate``"""

    scopes = {"POST": MANAGE}

    @describe(
        "rotate_webhook_secret",
        summary="Give a webhook a new secret",
        tag="webhooks",
        scope=MANAGE,
        answers={200: shapes.WebhookMade},
        problems=(400, 404, 409, 413, 415),
        parameters=[ID],
    )
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """The answer shows it, once; the old one signs beside it for a day."""
        read_object(request._request, known=frozenset())
        made = subscriptions.rotate(self.principal.tenant.pk, webhook_id)
        return Response({**shown(made.subscription), "secret": made.secret})


class PingWebhook(ApiView):
    """``/api/v1/webhooks/{id}/ping``"""

    scopes = {"POST": MANAGE}

    @describe(
        "ping_webhook",
        summary="Send a test message",
        tag="webhooks",
        scope=MANAGE,
        answers={202: shapes.DeliveryOut},
        problems=(400, 404, 409, 413, 415),
        parameters=[ID],
    )
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """It is sent within a second; the log tells what became of it."""
        read_object(request._request, known=frozenset())
        return Response(_delivery(subscriptions.ping(self.principal.tenant.pk, webhook_id)), status=202)


class WebhookDeliveries(ApiView):
    """``/api/v1/webhooks/{id}/deliveries``"""

    scopes = {"GET": READ}

    @describe(
        "list_webhook_deliveries",
        summary="Read a webhook's log",
        tag="webhooks",
        scope=READ,
        answers={200: listing(shapes.DeliveryOut)},
        problems=(404,),
        parameters=[ID, *DeliveryFilter.parameters(), LOG.parameter, *PAGING],
    )
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """A page of its deliveries, newest first; they are kept for 30 days."""
        query = request._request.GET
        log = subscriptions.deliveries(self.principal.tenant.pk, webhook_id)
        rows = DeliveryFilter.narrow(query, log)
        return Response(LOG.page(query, rows, lambda some: [_delivery(row) for row in some]))


class ReplayDelivery(ApiView):
    """``/api/v1/webhooks/{id}/deliveries/{delivery_id}/replay``"""

    scopes = {"POST": MANAGE}

    @describe(
        "replay_webhook_delivery",
        summary="Send a delivery again",
        tag="webhooks",
        scope=MANAGE,
        answers={202: shapes.DeliveryOut},
        problems=(400, 404, 409, 413, 415),
        parameters=[ID, DELIVERY],
    )
    def post(self, request: Request, webhook_id: UUID, delivery_id: UUID) -> Response:
        """Now, with the same id and content; its attempts begin anew."""
        read_object(request._request, known=frozenset())
        delivery = subscriptions.replay(self.principal.tenant.pk, webhook_id, delivery_id)
        return Response(_delivery(delivery), status=202)
