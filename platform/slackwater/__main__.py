"""``slackwater COMMAND``, ``python -m slackwater COMMAND``: tenants' commands over REST, and those of the platform."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from pathlib import Path

from slackwater.cli import NAMES

OWN = ("slackwater", "scheduler_ext")
"""What the names of our modules begin with: one that is missing is a fault of ours."""
OURS = frozenset({*NAMES, "help", "-h", "--help", "--version"})


def main() -> None:
    """Run a tenant's command; anything else, and all that follows ``manage``, is a command of the platform."""
    words = sys.argv[1:]
    if not words or words[0] in OURS:
        from slackwater.cli import command

        raise SystemExit(command.main(["--help"] if words == ["help"] else words))
    if words[0] == "manage":
        del sys.argv[1]
    manage()


def manage() -> None:
    """Run a management command, with the settings of the embedded servers unless told otherwise."""
    gc.disable()  # nothing that is imported is garbage, and looking for some took a tenth
    given = os.environ.get("DJANGO_SETTINGS_MODULE")
    if given:
        sys.path[:0] = [str(Path.cwd())]  # where `manage.py` and `celery -A` find a project's settings
    else:
        os.environ["DJANGO_SETTINGS_MODULE"] = "slackwater.settings.embedded"
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"slackwater: {' '.join(sys.argv[1:2]) or 'manage'} is a command of the platform, and {error.name} is not installed "
            "here: `pip install 'slackwater[embedded]'`, or in a clone `make env` and .venv/bin/python; "
            f"what is here: {', '.join(NAMES)}"
        ) from error
    try:
        sys.argv[1:2] = [name.replace("-", "_") if name[:1] != "-" else name for name in sys.argv[1:2]]  # import-beat
        _load(*sys.argv[1:2])
        gc.freeze()
        gc.enable()
        execute_from_command_line(["slackwater", *sys.argv[1:]] if sys.argv[0].endswith("__main__.py") else sys.argv)
    except ImproperlyConfigured as error:
        if "--traceback" in sys.argv:
            raise
        raise SystemExit(f"slackwater: {str(error).strip()}") from None
    except ModuleNotFoundError as error:
        if not given and error.name and not error.name.startswith(OWN) and "--traceback" not in sys.argv:
            raise SystemExit(
                f"slackwater: the platform's own settings need {error.name}, which is not installed here: `pip install "
                "'slackwater[server]'`; in a Django project of yours set DJANGO_SETTINGS_MODULE, and its settings hold"
            ) from error
        if not given or error.name not in (given, given.partition(".")[0]) or "--traceback" in sys.argv:
            raise
        said = f"DJANGO_SETTINGS_MODULE names {given}, and there is no module {error.name} here"
        raise SystemExit(f"slackwater: {said}: call it in the project's folder") from None


def _load(name: str = "") -> None:
    """Load the platform and a command of ours."""
    from slackwater.settings.environment import is_ours

    if not is_ours(name):
        return
    import django

    django.setup()
    import_module(f"slackwater.management.commands.{name}")


if __name__ == "__main__":
    main()
