"""``slackwater COMMAND``, ``python -m slackwater COMMAND``: tenants' commands over REST, and those of the platform."""

from __future__ import annotations

import gc
import os
import sys
from argparse import ArgumentParser
from importlib import import_module
from pathlib import Path

from slackwater.cli import NAMES

OWN = ("slackwater", "scheduler_ext")
"""What the names of our modules begin with: one that is missing is a fault of ours."""
OURS = frozenset({*NAMES, "help", "-h", "--help", "--version"})
OF_AN_APP = frozenset({"doctor", "import_beat"})
"""Commands that load a Celery application."""
WITH_VALUE = ("--task", "--since", "--grace", "--tenant", "--settings", "--pythonpath", "-v", "--verbosity")
"""Their options that a value follows."""


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
    sys.argv[1:2] = [name.replace("-", "_") if name[:1] != "-" else name for name in sys.argv[1:2]]  # import-beat
    given = os.environ.get("DJANGO_SETTINGS_MODULE") or _of_the_app(sys.argv[1:])
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


def _of_the_app(words: list[str]) -> str:
    """The settings that the Celery application of a command names when it is imported, as ``celery -A`` lets it."""
    if words[:1] and words[0] in OF_AN_APP:
        options = ArgumentParser(add_help=False, exit_on_error=False)
        for option in WITH_VALUE:
            options.add_argument(option)
        path = sys.path[:]
        sys.path[:0] = [str(Path.cwd())]
        try:
            from celery.app.utils import find_app

            find_app(next(word for word in options.parse_known_args(words[1:])[1] if word[:1] != "-"))
        except Exception:  # noqa: BLE001, S110 - the command itself says what is wrong with it
            pass
        finally:
            sys.path[:] = path
    return os.environ.get("DJANGO_SETTINGS_MODULE", "")


def _load(name: str = "") -> None:
    """Load the platform and a command of ours."""
    from slackwater.settings.environment import is_ours

    if not is_ours(name):
        return
    import django
    from django.apps import apps
    from django.core.exceptions import ImproperlyConfigured

    django.setup()
    if not apps.is_installed("slackwater"):
        raise ImproperlyConfigured(
            f"{os.environ['DJANGO_SETTINGS_MODULE']}: INSTALLED_APPS lacks *slackwater.DJANGO_APPS, which {name} needs"
        )
    import_module(f"slackwater.management.commands.{name}")


if __name__ == "__main__":
    main()
