#!/usr/bin/env python3
"""Put platform/ and apps/ on the path and hand over to Django."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Run a management command, with the settings of the embedded servers unless told otherwise."""
    root = Path(__file__).resolve().parent
    sys.path[:0] = [str(root / "platform"), str(root / "apps")]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "slackwater.settings.embedded")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
    except ModuleNotFoundError as error:
        raise SystemExit("Django is not installed here: run `make env`, then .venv/bin/python manage.py …") from error
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        if "--traceback" in sys.argv:
            raise
        raise SystemExit(f"slackwater: {str(error).strip()}") from None


if __name__ == "__main__":
    main()
