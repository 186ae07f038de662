"""The environment variables of the platform, read in one place, and what database URLs turn into."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from logging import getLevelNamesMapping
from pathlib import Path
from typing import Any, Literal

import environ
from django.core.exceptions import ImproperlyConfigured

from scheduler_ext.conf import fault_in_number
from scheduler_ext.dispatch import redis_client
from slackwater.settings.place import home_folder
from slackwater_conf import NO_WEB_ADDRESS, Conf, WrongSetting, is_web_address

NOT_RUNNING = "the platform is not running here; start it with `make up`, or set SLACKWATER_DATABASE_URL"
ABSENT_REDIS_URL = "redis://slackwater-is-not-running.invalid:6379/0"

TRUTH = {"true": True, "on": True, "yes": True, "y": True, "ok": True, "1": True} | dict.fromkeys(
    ("false", "off", "no", "n", "0"), False
)


def _truth(text: str) -> bool:
    return TRUTH[text.strip().lower()]


KINDS: Mapping[Any, tuple[Callable[[str], Any], str]] = {
    bool: (_truth, "must be true or false"),
    int: (int, "must be a whole number"),
    float: (float, "must be a number"),
}
"""By kind: what reads a variable, and the words that refuse another text."""


class Env(environ.Env):  # type: ignore[misc]  # the library has no types
    """Says which variable is wrong: a bare ValueError from inside the settings helps nobody.

    A variable that is empty says the same as one that is not set, and ``$`` at the beginning is a letter like others.
    """

    def get_value(
        self, var: Any, cast: Any = None, default: Any = environ.Env.NOTSET, parse_default: bool = False
    ) -> Any:
        """The variable's value; raises ImproperlyConfigured naming it when it cannot be read as asked."""
        given = self.ENVIRON.get(var, "") or (default if parse_default else "")
        if given == "":
            if default is self.NOTSET:
                raise ImproperlyConfigured(f"{var} must be set")
            return default
        read, words = KINDS.get(cast, (None, "")) if isinstance(cast, type) else (None, "")
        try:
            found = read(given) if read else self.parse_value(given, cast)
        except (KeyError, ValueError, TypeError) as error:
            why = f"{words}, not {given!r}" if words else f"cannot be used: {error}"
            raise ImproperlyConfigured(f"{var} {why}") from error
        if cast is int and (fault := fault_in_number(var.lower(), found)):
            raise ImproperlyConfigured(f"{var} {fault}")
        return found

    def word(self, var: str, allowed: Sequence[str], *, default: str) -> str:
        """One of a few words."""
        found: str = self.str(var, default=default)
        if found not in allowed:
            raise ImproperlyConfigured(f"{var} must be one of {', '.join(allowed)}, not {found!r}")
        return found

    def email_url(self, var: Any, *given: Any, **how: Any) -> dict[str, Any]:
        """Where mail is handed over; what is wrong is said without its text, which may hold a password."""
        try:
            found: dict[str, Any] = super().email_url(var, *given, **how)
        except (ImproperlyConfigured, ValueError) as error:
            schemes = ", ".join(f"{scheme}://" for scheme in self.EMAIL_SCHEMES)
            raise ImproperlyConfigured(
                f"{var} must begin with one of {schemes}, and have a port that is one"
            ) from error
        return found

    def json(self, var: Any, *given: Any, **how: Any) -> dict[str, Any]:
        """A JSON object."""
        value = super().json(var, *given, **how)
        if not isinstance(value, dict):
            raise ImproperlyConfigured(f"{var} must be a JSON object")
        return value


env = Env()

COMMANDS = Path(__file__).resolve().parents[1] / "management" / "commands"


def process_kind(argv: Sequence[str]) -> Literal["site", "tables", "beat", "engine"]:
    """What a process loads: an engine or a command of ours neither the admin nor the REST interface.

    They are most of what Django would import, and a process that serves no pages never uses them. ``tables``: the
    tables of all apps, and no page.
    """
    if not argv:
        return "site"
    program = Path(argv[0])
    if "celery" in (program.name, program.parent.name):
        return "beat" if "beat" in argv else "engine"
    command = next((word for word in argv[1:] if not word.startswith("-")), "")
    if command == "create_demo":
        return "tables"
    return "engine" if command != "migrate" and is_ours(command) else "site"


def is_ours(command: str) -> bool:
    """Whether it is a management command of the platform."""
    return (COMMANDS / f"{command}.py").is_file()


# Every session may die at any moment without holding up the others: a stopped one loses its transaction
# (idle_in_transaction), a waiting one gives up (lock), a vanished peer is noticed (TCP).
SESSION_LIMITS = "-c idle_in_transaction_session_timeout=30s -c lock_timeout=15s -c timezone=UTC"
TCP_LIMITS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


def database_from_url(url: str, *, pooled: bool, pool_size: int) -> dict[str, Any]:
    """Turn a libpq URL into Django's description of a database.

    libpq's own parser reads it, so unix sockets (`postgresql:///name?host=/run/dir`) and all of libpq's
    options work. `pooled` says that PgBouncer in transaction mode stands between: no start-up options, no
    server-side cursors. `pool_size` > 0 keeps that many connections in a pool of this process, for processes
    whose threads come and go (the ASGI server).

    Raises ImproperlyConfigured when the URL is not one of PostgreSQL.
    """
    if not url.startswith(("postgresql://", "postgres://")):
        # Without its text, which may hold a password.
        raise ImproperlyConfigured("SLACKWATER_DATABASE_URL is not a PostgreSQL URL: it must begin with postgresql://")
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(url)
    except ProgrammingError as error:
        raise ImproperlyConfigured(f"SLACKWATER_DATABASE_URL is not a PostgreSQL URL: {error}") from error
    if not parts.get("dbname"):
        raise ImproperlyConfigured("SLACKWATER_DATABASE_URL names no database: postgresql://user@host/name")
    options: dict[str, Any] = dict(TCP_LIMITS)
    if not pooled:
        options["options"] = SESSION_LIMITS
        # Never to a standby, where the name may still lead after a fail-over: what is connected stays connected.
        options["target_session_attrs"] = "read-write"
    database: dict[str, Any] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.pop("dbname"),
        "USER": parts.pop("user", "") or "",
        "PASSWORD": parts.pop("password", "") or "",
        "HOST": parts.pop("host", "") or "",
        "PORT": str(parts.pop("port", "") or ""),
        "CONN_MAX_AGE": 0 if pool_size else 600,
        "CONN_HEALTH_CHECKS": True,
        "DISABLE_SERVER_SIDE_CURSORS": pooled,
        "ATOMIC_REQUESTS": False,
    }
    if pool_size:
        # While the database is away who asks is refused soon, and each asks for a new attempt: the pool's own pauses
        # between attempts double without end, and would keep the API away after the database is back.
        options["pool"] = {"min_size": 1, "max_size": pool_size, "timeout": 1.5, "reconnect_timeout": 0.5}
    options.update(parts)
    database["OPTIONS"] = options
    return database


def absent_database() -> dict[str, Any]:
    """Describe a database that says, when somebody asks it anything, that the platform is not running."""
    return {"ENGINE": "slackwater.absent", "NAME": "slackwater", "CONN_HEALTH_CHECKS": False}


def redis_group(redis_url: str) -> redis_client.Group | None:
    """The group with sentinels a URL names, if it does; raises ImproperlyConfigured when it names it wrongly."""
    try:
        return redis_client.group(redis_url)
    except ValueError as error:
        raise ImproperlyConfigured(f"SLACKWATER_REDIS_URL: {error}") from error


def celery_broker_url(redis_url: str) -> str:
    """The same Redis in kombu's spelling, which differs for unix sockets.

    `unix://:secret@/run/redis.sock?db=1` becomes `redis+socket://:secret@/run/redis.sock?virtual_host=1`.
    A group with sentinels becomes the list of them; the rest is for the transport's options.
    """
    if found := redis_group(redis_url):
        return found.broker_url()
    if not redis_url.startswith("unix://"):
        return redis_url
    return redis_url.replace("unix://", "redis+socket://", 1).replace("db=", "virtual_host=")


def log_level() -> str:
    """The level of the log; raises ImproperlyConfigured when there is no such level."""
    level: str = env.str("SLACKWATER_LOG_LEVEL", default="INFO").upper()
    if level not in getLevelNamesMapping():
        raise ImproperlyConfigured(f"SLACKWATER_LOG_LEVEL must be one of DEBUG, INFO, WARNING, ERROR, not {level}")
    return level


def given_database_url() -> str:
    """The database the environment names; empty where it names none."""
    url: str = env.str("SLACKWATER_DATABASE_URL", default="")
    return url


READERS: Mapping[str, Callable[..., Any]] = {
    "str": env.str,
    "bool": env.bool,
    "int": env.int,
    "float": env.float,
    "tuple[str, ...]": env.list,
    "tuple[int, ...]": lambda name: env.list(name, cast=int),
    "Mapping[str, Any]": env.json,
    "SchedulerConf": env.json,
}


def given_settings() -> dict[str, Any]:
    """``SLACKWATER`` as the environment has it: the variable of a key is its name with ``SLACKWATER_`` in front.

    Raises ImproperlyConfigured naming the variable that cannot be.
    """
    found: dict[str, Any] = {
        "VAR": str(home_folder() / "var"),
        "REDIS_URL": ABSENT_REDIS_URL,
        "TRACE_ENDPOINT": _collector(),
    }
    for spec in fields(Conf):
        key = spec.name.upper()
        # A variable that is empty says the same as one that is not set.
        if key != "TRACE_ENDPOINT" and env.str(f"SLACKWATER_{key}", default=""):
            found[key] = READERS[str(spec.type)](f"SLACKWATER_{key}")
    found["VAR"] = str(Path(found["VAR"]).resolve())
    try:
        Conf.from_mapping(found)
    except WrongSetting as wrong:
        raise ImproperlyConfigured(f"SLACKWATER_{wrong.key} {wrong.why}") from wrong
    return found


def _collector() -> str:
    """The address by OpenTelemetry's own variables."""
    # By its specification a word that is neither true nor false counts as false.
    disabled = TRUTH.get(env.str("OTEL_SDK_DISABLED", default="").lower(), False)
    if disabled or env.str("OTEL_TRACES_EXPORTER", default="otlp") == "none":
        return ""
    for name, path in (("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ""), ("OTEL_EXPORTER_OTLP_ENDPOINT", "/v1/traces")):
        url: str = env.str(name, default="")
        if url and not is_web_address(url):
            raise ImproperlyConfigured(f"{name} {NO_WEB_ADDRESS}: spans go by OTLP over HTTP")
        if url:
            return url.rstrip("/") + path if path else url
    return ""
