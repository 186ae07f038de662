"""``slackwater COMMAND``, ``python -m slackwater COMMAND`` and ``manage.py COMMAND``: hand over to Django."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run a management command, with the settings of the embedded servers unless told otherwise."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "slackwater.settings.embedded")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"slackwater: {error.name} is not installed here: run `make env` and take .venv/bin/python, "
            "or `pip install 'slackwater[embedded]'`"
        ) from error
    try:
        sys.argv[1:2] = [name.replace("-", "_") if name[:1] != "-" else name for name in sys.argv[1:2]]  # import-beat
        execute_from_command_line(["slackwater", *sys.argv[1:]] if sys.argv[0].endswith("__main__.py") else sys.argv)
    except ImproperlyConfigured as error:
        if "--traceback" in sys.argv:
            raise
        raise SystemExit(f"slackwater: {str(error).strip()}") from None


if __name__ == "__main__":
    main()
