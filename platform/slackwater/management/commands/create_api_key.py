"""Create an API key."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from scheduler_ext.core.errors import InvalidInput
from slackwater.management.console import PlatformCommand, find_tenant
from slackwater_tenants.services import create_api_key

MAX_DAYS = 36_500


class Command(PlatformCommand):
    help = "Create an API key of a tenant. The key is printed once and nowhere kept."
    for_tenant = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant", help="slug of the tenant")
        parser.add_argument("--name", default="command line", help="what it is for")
        parser.add_argument(
            "--scope",
            action="append",
            dest="scopes",
            help="submit, read, cancel, manage, or operate (nodes); repeatable (the first three)",
        )
        parser.add_argument("--days", type=float, help="how long it is valid (for ever)")

    def run(self, options: dict[str, Any]) -> None:
        tenant = find_tenant(options["tenant"], field="tenant")
        scopes = options["scopes"] or ("submit", "read", "cancel")
        key, text = create_api_key(tenant, options["name"], scopes, _expiry(options["days"]))
        shown = {name: getattr(key, name) for name in ("prefix", "scopes", "expires_at")}
        self.answer({"tenant": tenant.slug, **shown, "key": text}, text)
        if not self.as_json:
            self.stderr.write(f"It is shown only this once. Scopes: {', '.join(key.scopes)}.")


def _expiry(days: float | None) -> datetime | None:
    if days is None:
        return None
    if not 0 < days <= MAX_DAYS:
        raise InvalidInput(f"must be greater than 0 and at most {MAX_DAYS}", field="--days")
    return timezone.now() + timedelta(days=days)
