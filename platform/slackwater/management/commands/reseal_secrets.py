"""Seal all secrets anew under the first key."""

from __future__ import annotations

from typing import Any

from rich.progress import Progress

from slackwater.management.console import PlatformCommand
from slackwater_tasks.control.secrets import reseal
from slackwater_tasks.models import Secret


class Command(PlatformCommand):
    """``manage.py reseal_secrets``"""

    for_tenant = False
    help = "Seal tenants' secrets anew under the first of SLACKWATER_SECRETS_KEYS; older keys may be dropped then."

    def run(self, options: dict[str, Any]) -> None:
        """All of them."""
        with Progress(console=self.console, disable=self.is_quiet, transient=True) as bar:
            task = bar.add_task("sealing", total=Secret.objects.unscoped().count())  # of every tenant
            count = reseal(progress=lambda: bar.advance(task))
        if self.as_json:
            self.show({"resealed": count})
        else:
            self.stdout.write(f"{count} secrets are sealed under the first key")
