"""What a client can do with schedules, handlers, scripts, webhooks, and ask of the platform."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Unpack

from slackwater.client.binding import Listing, listing, operation
from slackwater.client.bodies import (
    DeliveryFilter,
    PatchedScheduleChange,
    PatchedWebhookChange,
    PreviewIn,
    ReceiptFilter,
    ScheduleFilter,
    ScheduleIn,
    WebhookIn,
)
from slackwater.client.exchange import Flow, change, read
from slackwater.client.of_platform import (
    BackfillOut,
    DeliveryOut,
    FiringOut,
    HandlerOut,
    LimitsOut,
    NodeOut,
    OrganizationOut,
    PreviewOut,
    QueueOut,
    ReceiptKeyOut,
    ReceiptOut,
    ScheduleDetail,
    ScheduleSummary,
    ScriptDetail,
    ScriptSummary,
    SecretOut,
    TierOut,
    UsageHint,
    UsageOut,
    WebhookMade,
    WebhookOut,
)
from slackwater.client.operations import Base, at


class Schedules(Base):
    """Schedules."""

    @listing
    def schedules(self, /, **narrowed: Unpack[ScheduleFilter]) -> Listing[ScheduleSummary]:
        """Schedules, by name."""
        return Listing("/schedules", narrowed)

    @operation
    def schedule(self, schedule_id: str) -> Flow[ScheduleDetail]:
        """One with its next firings."""
        return self.ask(read(at("/schedules/{}", schedule_id)))

    @operation
    def create_schedule(self, /, **fields: Unpack[ScheduleIn]) -> Flow[ScheduleDetail]:
        """Run a task or a workflow again and again."""
        return self.ask(change("POST", "/schedules", fields))

    @operation
    def edit_schedule(self, schedule_id: str, /, **fields: Unpack[PatchedScheduleChange]) -> Flow[ScheduleDetail]:
        """Change it, or pause it."""
        return self.ask(change("PATCH", at("/schedules/{}", schedule_id), fields))

    @operation
    def delete_schedule(self, schedule_id: str) -> Flow[None]:
        """Delete it; what it has submitted stays."""
        return self.ask(change("DELETE", at("/schedules/{}", schedule_id)))

    @operation
    def run_schedule(self, schedule_id: str) -> Flow[FiringOut]:
        """Fire it now."""
        return self.ask(change("POST", at("/schedules/{}/run", schedule_id)))

    @operation
    def preview_schedule(self, /, **times: Unpack[PreviewIn]) -> Flow[PreviewOut]:
        """When such times would fire; nothing is stored."""
        return self.ask(change("POST", "/schedules/preview", times))

    @operation
    def backfill_schedule(self, schedule_id: str, start: str | datetime, end: str | datetime) -> Flow[BackfillOut]:
        """Submit what it would have fired in a past range, both ends included."""
        body = {"start": start, "end": end}
        return self.ask(change("POST", at("/schedules/{}/backfill", schedule_id), body))

    @listing
    def firings(self, schedule_id: str, /, **narrowed: Any) -> Listing[FiringOut]:
        """The times it fired for, or missed."""
        return Listing(at("/schedules/{}/firings", schedule_id), narrowed)


class Programs(Base):
    """Handlers, scripts and secrets."""

    @listing
    def handlers(self) -> Listing[HandlerOut]:
        """The handlers that your plan grants, with the schema of their arguments."""
        return Listing("/handlers", {})

    @operation
    def handler(self, name: str) -> Flow[HandlerOut]:
        """One of them."""
        return self.ask(read(at("/handlers/{}", name)))

    @operation
    def store_script(self, name: str, content: str) -> Flow[ScriptSummary]:
        """Store a script by its content; its ``sha256`` names it in tasks."""
        return self.ask(change("POST", "/scripts", {"name": name, "content": content}))

    @listing
    def scripts(self, /, **narrowed: Any) -> Listing[ScriptSummary]:
        """Stored scripts."""
        return Listing("/scripts", narrowed)

    @operation
    def script(self, sha256: str) -> Flow[ScriptDetail]:
        """One with its content."""
        return self.ask(read(at("/scripts/{}", sha256)))

    @operation
    def delete_script(self, sha256: str) -> Flow[None]:
        """Delete it, once no task that has not ended needs it."""
        return self.ask(change("DELETE", at("/scripts/{}", sha256)))

    @listing
    def secrets(self) -> Listing[SecretOut]:
        """Secrets by name, without their values."""
        return Listing("/secrets", {})

    @operation
    def put_secret(self, name: str, value: str) -> Flow[SecretOut]:
        """Store or replace a secret."""
        return self.ask(change("POST", "/secrets", {"name": name, "value": value}))

    @operation
    def delete_secret(self, name: str) -> Flow[None]:
        """Delete a secret."""
        return self.ask(change("DELETE", at("/secrets/{}", name)))


class Webhooks(Base):
    """Webhooks; ``slackwater.client.verify`` checks what they bring."""

    @listing
    def webhooks(self) -> Listing[WebhookOut]:
        """Your webhooks."""
        return Listing("/webhooks", {})

    @operation
    def create_webhook(self, /, **fields: Unpack[WebhookIn]) -> Flow[WebhookMade]:
        """Make one; its ``secret`` is shown this once."""
        return self.ask(change("POST", "/webhooks", fields))

    @operation
    def edit_webhook(self, webhook_id: str, /, **fields: Unpack[PatchedWebhookChange]) -> Flow[WebhookOut]:
        """Change it, disable it, enable it."""
        return self.ask(change("PATCH", at("/webhooks/{}", webhook_id), fields))

    @operation
    def delete_webhook(self, webhook_id: str) -> Flow[None]:
        """Delete it."""
        return self.ask(change("DELETE", at("/webhooks/{}", webhook_id)))

    @operation
    def rotate_webhook(self, webhook_id: str) -> Flow[WebhookMade]:
        """A new secret; for a day the old one signs beside it."""
        return self.ask(change("POST", at("/webhooks/{}/rotate", webhook_id)))

    @operation
    def ping_webhook(self, webhook_id: str) -> Flow[DeliveryOut]:
        """Send it a test message."""
        return self.ask(change("POST", at("/webhooks/{}/ping", webhook_id)))

    @listing
    def deliveries(self, webhook_id: str, /, **narrowed: Unpack[DeliveryFilter]) -> Listing[DeliveryOut]:
        """What was sent to it, and what became of that."""
        return Listing(at("/webhooks/{}/deliveries", webhook_id), narrowed)

    @operation
    def replay_delivery(self, webhook_id: str, delivery_id: str) -> Flow[DeliveryOut]:
        """Send one again."""
        return self.ask(change("POST", at("/webhooks/{}/deliveries/{}/replay", webhook_id, delivery_id)))


class Platform(Base):
    """Your organisation and its use, and any address of the API that has no method here."""

    @operation
    def whoami(self) -> Flow[OrganizationOut]:
        """Your organisation, and what your key may do."""
        return self.ask(read("/organization"))

    @operation
    def limits(self) -> Flow[LimitsOut]:
        """Your plan's limits, and how much of them is used."""
        return self.ask(read("/limits"))

    @operation
    def usage(self, *, since: str | date | None = None, until: str | date | None = None) -> Flow[UsageOut]:
        """Resources used and their price, of all days from one to another."""
        query = {"since": since, "until": until, "limit": 500}
        found: UsageOut = yield from self.ask(read("/usage", query))
        while found["next_cursor"]:
            page = yield from self.ask(read("/usage", {**query, "cursor": found["next_cursor"]}))
            found["items"] += page["items"]
            found["next_cursor"] = page["next_cursor"]
        return found

    @listing
    def usage_hints(self) -> Listing[UsageHint]:
        """Which scripts and handlers would have run in a smaller tier."""
        return Listing("/usage/hints", {})

    @listing
    def receipts(self, /, **narrowed: Unpack[ReceiptFilter]) -> Listing[ReceiptOut]:
        """Receipts of what has ended, in the order of their chain; ``slackwater verify-receipts`` proves them."""
        return Listing("/receipts", narrowed)

    @listing
    def receipt_keys(self) -> Listing[ReceiptKeyOut]:
        """The public keys that seal receipts."""
        return Listing("/receipt-keys", {})

    @listing
    def queues(self) -> Listing[QueueOut]:
        """Your lines with their numbers of tasks."""
        return Listing("/queues", {})

    @listing
    def tiers(self) -> Listing[TierOut]:
        """The tiers that tasks of yours can name."""
        return Listing("/tiers", {})

    @listing
    def nodes(self) -> Listing[NodeOut]:
        """The nodes of your cell."""
        return Listing("/nodes", {})

    @operation
    def request(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Flow[Any]:  # fmt: skip
        """Any request under ``/api/v1``: ``request("POST", "/keys", {"scopes": ["read"]})``; its JSON comes back."""
        if method == "GET":
            return self.ask(read(path, query or {}))
        return self.ask(change(method, path, body, once=idempotency_key, query=query))

    @listing
    def pages(self, path: str, /, **narrowed: Any) -> Listing[dict[str, Any]]:
        """The items of any list under ``/api/v1``: ``pages("/members")``."""
        return Listing(path, narrowed)
