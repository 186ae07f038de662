"""Seal all secrets anew under the first key."""

from __future__ import annotations

from typing import Any

from slackwater.management.console import PlatformCommand
from slackwater_tasks.control.secrets import reseal
from slackwater_tasks.models import Secret


class Command(PlatformCommand):
    for_tenant = False
    help = "Seal tenants' secrets anew under the first of SLACKWATER_SECRETS_KEYS; older keys may be dropped then."

    def run(self, options: dict[str, Any]) -> None:
        with self.bar() as bar:
            task = bar.add_task("sealing", total=Secret.objects.unscoped().count())  # of every tenant
            count = reseal(progress=lambda: bar.advance(task))
        self.answer({"resealed": count}, f"{count} secrets are sealed under the first key")
