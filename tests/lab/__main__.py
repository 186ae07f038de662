"""``python -m tests.lab bench`` and the other commands of the laboratory; they look as Django's own do."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Final

from django.core.exceptions import ImproperlyConfigured

COMMANDS: Final = {
    "bench": "benchmarks",
    "torture": "torture",
    "sandbox_score": "sandbox_score",
    "docs": "reference",
    "fairness": "fairness",
    "attack": "attack",
    "site": "site",
    "shots": "shots",
    "matrix": "matrix",
    "control_room": "control_room",
}


def main() -> None:
    """Run one command, with the settings of the embedded servers unless told otherwise."""
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        raise SystemExit(f"python -m tests.lab {' | '.join(COMMANDS)} [--help]")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "slackwater.settings.embedded")
    import django

    try:
        django.setup()
        module = import_module(f"tests.lab.{COMMANDS[sys.argv[1]]}.command")
        module.Command().run_from_argv(["python -m tests.lab", *sys.argv[1:]])
    except ImproperlyConfigured as error:
        raise SystemExit(f"slackwater: {str(error).strip()}") from None


main()
