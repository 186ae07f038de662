"""Seal all secrets anew under the first key."""

from __future__ import annotations

from typing import Any

from slackwater.management.console import PlatformCommand
from slackwater_monitoring.models import Subscription
from slackwater_monitoring.notify import subscriptions
from slackwater_tasks.control import secrets
from slackwater_tasks.models import Secret


class Command(PlatformCommand):
    for_tenant = False
    help = (
        "Seal tenants' secrets, and those that sign their webhooks, anew under the first of SLACKWATER_SECRETS_KEYS; "
        "older keys may be dropped then."
    )

    def run(self, options: dict[str, Any]) -> None:
        with self.bar() as bar:
            total = Secret.objects.unscoped().count() + Subscription.objects.unscoped().count()  # of every tenant
            task = bar.add_task("sealing", total=total)
            count = sum(reseal(progress=lambda: bar.advance(task)) for reseal in (secrets.reseal, subscriptions.reseal))
        self.answer({"resealed": count}, f"{count} secrets are sealed under the first key")
