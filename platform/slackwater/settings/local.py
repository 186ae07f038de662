"""What a local platform leaves in var/ for the processes beside it: the servers' URLs and the secret key."""

import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import Any

from slackwater.settings.place import home_folder

SERVERS_FILE = "servers.json"
LOCK_FILE = "up.lock"
SECRET_KEY_FILE = "secret_key"


def var_folder() -> Path:
    """Return the folder that holds all data of the local platform (SLACKWATER_VAR, else `var/` of its home)."""
    return Path(os.environ.get("SLACKWATER_VAR") or home_folder() / "var").resolve()


def write_private(path: Path, text: str) -> None:
    """Replace a file at once by one that only its owner may read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)


def is_supervised(var: Path) -> bool:
    """Tell whether a supervisor runs in this folder: it holds the lock, which ends with it."""
    try:
        with (var / LOCK_FILE).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def read_servers(var: Path) -> dict[str, Any]:
    """Return what the supervisor of this folder wrote about its servers, or {} when none is running."""
    try:
        servers = json.loads((var / SERVERS_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return dict(servers) if is_supervised(var) else {}


def local_secret_key(var: Path) -> str:
    """Return Django's secret key of this folder, made at first use and kept beside the data."""
    path = var / SECRET_KEY_FILE
    try:
        if not path.exists():
            write_private(path, secrets.token_urlsafe(50))
        return path.read_text().strip()
    except OSError as error:
        # Here: the supervisor of `make up`, which finds its folder by this module, never loads Django.
        from django.core.exceptions import ImproperlyConfigured

        raise ImproperlyConfigured(
            f"{var}, the folder for all data, cannot be used: {error.strerror}; choose another with SLACKWATER_VAR"
        ) from error


def adopt_local_servers() -> None:
    """Fill what the environment leaves open from var/, so that base finds one complete environment.

    Done in the environment itself because the processes started from here must see the same.
    """
    var = var_folder()
    servers = read_servers(var)
    for name in ("SLACKWATER_DATABASE_URL", "SLACKWATER_REDIS_URL", "SLACKWATER_PUBLIC_URL"):
        if name in servers and not os.environ.get(name):
            os.environ[name] = servers[name]
    if not os.environ.get("SLACKWATER_SECRET_KEY"):
        os.environ["SLACKWATER_SECRET_KEY"] = local_secret_key(var)
