"""The one dictionary ``SLACKWATER`` of Django's settings, typed: every key has a default, a wrong one is refused.

The service fills it from the environment: the variable of a key is its name with ``SLACKWATER_`` in front.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from email.utils import parseaddr
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from scheduler_ext.conf import NAME_FORM, NAME_WORDS, SchedulerConf, fault_in_number
from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.labels import fault_in
from scheduler_ext.dispatch import redis_client

LAST_PORT: Final = 65_535
UNSET: Mapping[str, Any] = {}
SLUG_FORM: Final = NAME_FORM
NO_WEB_ADDRESS: Final = "must begin with http:// or https:// and name a host"


class WrongSetting(ImproperlyConfigured):
    """A value of ``SLACKWATER`` that is not allowed, or a key that does not exist."""

    def __init__(self, key: str, why: str) -> None:
        """``why`` goes on where the key ends: "must be from 0 to 1"."""
        self.key, self.why = key, why
        super().__init__(f'SLACKWATER["{key}"] {why}')


def is_web_address(url: str) -> bool:
    """Whether it begins with http:// or https:// and names a host."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # a port or an address of a host that is none
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0 and not re.search(r"\s", url)


def _fault_in(name: str, value: Any) -> str:
    """What no setting can be: a number out of bounds, and a text of spaces, alone or in a list."""
    if isinstance(value, tuple):
        if "" in value:
            return "has an empty text"
        return next((fault for one in value if (fault := _fault_in(name, one))), "")
    if isinstance(value, (int, float)):
        return fault_in_number(name, value)
    return "must not be blank" if isinstance(value, str) and value.isspace() else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conf:
    """Every setting of Slackwater. The keys of the dictionary are these names in capitals."""

    cell: str = "default"
    """The cell this process belongs to: a set of tenants and nodes with one leading dispatcher."""
    ledger_alias: str = "default"
    """The database of ``DATABASES`` that has the ledger, in a Django project whose own is another one: see
    [Django](../how-to/django.md#the-ledger-in-another-database). A task is then no part of the project's transactions."""
    redis_url: str = "redis://127.0.0.1:6379/0"
    """Redis or Valkey (``redis://``, ``rediss://``, ``unix://``, or
    ``sentinel://:password@host:port,host:port/0?master=name`` for a group with Sentinel). The service's variable not
    set: the embedded server."""
    scheduler: SchedulerConf = field(default_factory=SchedulerConf)
    """Settings of the scheduler as a JSON object: see [settings.md](settings.md)."""
    handlers: tuple[str, ...] = ()
    """Modules a worker imports at its start, comma-separated: what they export can be run. Python must find them
    (``PYTHONPATH``, or installed)."""
    tenant: str = ""
    """Slug of the tenant that owns tasks which Celery's own API (``delay``, ``apply_async`` …) submits for a handler while
    no tenant is in context. Not set: such a call is refused."""
    durable: tuple[str, ...] = ()
    """Patterns of the names of Celery tasks that are durable, comma-separated: `orders.*`. In a Django project they hold for
    its Celery applications; see [From Celery](../how-to/from-celery.md). A process that names them accepts their tasks
    before any worker has them."""
    shadow: tuple[str, ...] = ()
    """Patterns of the names of Celery tasks that stay Celery's, while what the ledger would make of each call and what Celery
    does with it is noted beside, for `doctor --compare`: see [Before you move](../how-to/moving.md#the-shadow). No name may
    be durable too."""
    demo_handlers: bool = False
    """Export the small ``demo.*`` handlers; ``make up`` does."""
    capacity: tuple[int, ...] = ()
    """The resources of a worker's machine, if they should not be measured: six numbers, comma-separated: CPU in
    thousandths, memory MiB, disk MiB, IOPS, kbit/s, ports."""
    labels: tuple[str, ...] = ()
    """Labels a worker's node carries, comma-separated: `ssd,gpu=a100,zone=eu`. Tasks, handlers and plans may require or
    prefer them: see [Labels](../how-to/labels.md). `reserved` keeps other work off."""
    script_slots: int = 0
    """Scripts a worker runs at once; 0: as many as it has pool processes."""
    secrets_keys: tuple[str, ...] = ()
    """Keys that seal tenants' secrets and the messages of the platform's processes in Redis, comma-separated: the first
    seals, all open. To change the key, put the new one in front and run ``manage.py reseal_secrets``. Not set: derived
    from Django's secret key, and those behind it."""
    api_threads: int = 8
    """Threads of one API process, each with a database connection of its own."""
    api_max_body_bytes: int = 33_554_432
    """The largest request body the API reads."""
    api_max_body_values: int = 400_000
    """The most values in one body: members of objects and entries of arrays, all counted. A value may take a hundred bytes
    of memory or more, however short it is in the body."""
    api_connections_per_address: int = 2_000
    """Connections that one address may have to one API process: of more, those silent longest are ended within a second
    or two. 0: any number, for an API that only your own proxy reaches."""
    metrics_token: str = ""
    """The bearer token that ``/metrics`` requires. Not set: it answers only requests from the same machine that came through
    no proxy."""
    artifacts_url: str = ""
    """Where the content of artifacts and uploads lies: `file:///folder` that every process sees, or `s3://bucket/prefix` (the
    bucket's keys, region and endpoint come from the variables `AWS_…`). Not set: in the database, beside the tasks."""
    webhook_private: bool = False
    """True lets webhooks be sent into private networks (loopback and link-local addresses too); every tenant can then reach
    what the upkeep process can."""
    webhook_ports: tuple[int, ...] = (80, 443, 8080, 8443)
    """Ports that tenants' webhooks may be sent to, comma-separated; 0 among them: any. Other ports are rarely web servers,
    and a tenant could probe them by way of the platform."""
    email_from: str = "slackwater@localhost"
    """Sender of notifications by e-mail."""
    alerts: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the rules of alerts, as a JSON object: see [alerts.md](../alerts.md)."""
    alerts_every_s: float = 5.0
    """Seconds between two checks for alerts."""
    alert_emails: tuple[str, ...] = ()
    """Who gets alerts by e-mail, comma-separated. Not set: superusers with an address."""
    alert_webhook: str = ""
    """Address that alerts are posted to; private networks are allowed here."""
    alert_webhook_secret: str = ""
    """Secret (``whsec_…``) that signs them, as webhooks of tenants are signed."""
    scale_command: tuple[str, ...] = ()
    """Command that is called when a cell needs more workers or fewer, its words comma-separated; it runs without a shell: see
    [Scale workers](../how-to/autoscaling.md)."""
    scale_webhook: str = ""
    """Address that the same is posted to, signed with ``ALERT_WEBHOOK_SECRET``; private networks are allowed here."""
    scale_cooldown_s: float = 300.0
    """Seconds between two such calls, at least; and for how long fewer workers must have been enough before it is told."""
    scale_timeout_s: float = 60.0
    """After this time the command is killed, with what it has started."""
    trace_endpoint: str = ""
    """URL to which spans are posted, by OTLP over HTTP; empty: none, and traces are not kept. The service takes it from
    OpenTelemetry's own variables."""
    trace_ratio: float = 0.0
    """The share of tasks without a trace for which one is begun: 0 to 1."""
    trace_backlog: int = 100_000
    """Ended tasks whose spans are kept while the collector is away; beyond, the oldest are given up."""
    oidc_issuer: str = ""
    """The provider by which people may log in to the console (OpenID Connect), as it names itself: https://… Not set: they
    log in by password alone. See [The console](../how-to/console.md#logging-in)."""
    oidc_client_id: str = ""
    """The name under which the provider knows the platform."""
    oidc_client_secret: str = ""
    """The secret that goes with it."""
    oidc_scopes: tuple[str, ...] = ("openid", "profile", "email")
    """The scopes that the provider is asked for, comma-separated; some need another one to tell groups."""
    oidc_groups_claim: str = "groups"
    """The claim that tells somebody's groups."""
    oidc_roles: Mapping[str, Any] = field(default_factory=dict)
    """By group of the provider the roles it gives, by tenant: `{"acme-ops": {"acme": "operator"}}`; of several the highest
    holds. Of the tenants named here, who comes by the provider is a member as long as its groups say so."""
    trusted_proxies: int = 0
    """How many proxies of yours stand in front and add to ``X-Forwarded-For``: clients are told apart by the address before
    them. 0: by the peer's."""
    public_url: str = ""
    """URL under which clients reach the platform, if it is not made of host and port."""
    host: str = "127.0.0.1"
    """Address the API listens on under ``make up``."""
    port: int = 8000
    """Port of the API under ``make up``. 0 takes a free one and prints it, as does a default that is taken."""
    var: str = "var"
    """All local data: the embedded servers, logs, ``demo.env``. The service's default: ``var/`` in the project, or in
    ``~/.local/share/slackwater/`` where Slackwater is installed as a package."""
    log_dir: str = ""
    """A folder in which each slot of a worker also keeps a file of its own, ``WORKER-SLOT.log``, as JSON: 10 MiB, and
    three older ones."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, naming the key."""
        for spec in fields(self):
            if fault := _fault_in(spec.name, getattr(self, spec.name)):
                raise WrongSetting(spec.name.upper(), fault)
        if self.trace_ratio > 1:
            raise WrongSetting("TRACE_RATIO", "must be from 0 to 1")
        for name in ("api_threads", "api_max_body_bytes", "api_max_body_values", "alerts_every_s", "scale_timeout_s"):
            if getattr(self, name) <= 0:
                raise WrongSetting(name.upper(), "must be greater than 0")
        if len(self.capacity) not in {0, 6}:
            raise WrongSetting("CAPACITY", "must be six numbers")
        if faults := [f"has {label!r}, which {fault}" for label in self.labels if (fault := fault_in(label))]:
            raise WrongSetting("LABELS", faults[0])
        self._check_addresses()
        self._check_names()
        self._refuse_both()
        self._check_provider()
        if self.public_url.endswith("/"):
            object.__setattr__(self, "public_url", self.public_url.rstrip("/"))

    def _check_addresses(self) -> None:
        """Refuse addresses that nothing could be reached at."""
        try:
            redis_client.check_url(self.redis_url)
        except ValueError as error:
            raise WrongSetting("REDIS_URL", f"cannot be used: {error}") from error
        for name in ("scale_webhook", "trace_endpoint", "public_url"):
            if (url := getattr(self, name)) and not is_web_address(url):
                raise WrongSetting(name.upper(), NO_WEB_ADDRESS)
        if self.artifacts_url and not self.artifacts_url.startswith(("file:///", "s3://")):
            raise WrongSetting("ARTIFACTS_URL", "must begin with file:/// or s3://")
        if self.artifacts_url and not self.artifacts_url.partition(":")[2].strip("/"):
            raise WrongSetting("ARTIFACTS_URL", "must name a bucket or a folder")
        if "@" not in parseaddr(self.email_from)[1]:
            raise WrongSetting("EMAIL_FROM", "must be an address of e-mail")

    def _check_names(self) -> None:
        """Refuse a host, a port and a tenant that can be none."""
        if not re.fullmatch(r"[\w.:%-]+", self.host):
            raise WrongSetting("HOST", "must be an address or the name of a host")
        if self.port > LAST_PORT:
            raise WrongSetting("PORT", f"must be at most {LAST_PORT}")
        if any(port > LAST_PORT for port in self.webhook_ports):
            raise WrongSetting("WEBHOOK_PORTS", f"must be at most {LAST_PORT}, each")
        if self.tenant and not re.fullmatch(SLUG_FORM, self.tenant):
            raise WrongSetting("TENANT", f"must be the slug of a tenant: {NAME_WORDS}")

    def _check_provider(self) -> None:
        """Refuse a provider that could not be used, or that others could stand in for."""
        if not self.oidc_issuer:
            return
        secure = self.oidc_issuer.startswith(("https://", "http://127.0.0.1:", "http://localhost:"))
        if not (secure and is_web_address(self.oidc_issuer)):
            raise WrongSetting("OIDC_ISSUER", "must begin with https:// and name a host")
        if not self.oidc_client_id:
            raise WrongSetting("OIDC_CLIENT_ID", "must be given beside OIDC_ISSUER")
        if "openid" not in self.oidc_scopes:
            raise WrongSetting("OIDC_SCOPES", "must have openid among them")
        for group, given in self.oidc_roles.items():
            if not isinstance(given, Mapping) or set(given.values()) - {"viewer", "operator", "admin"}:
                raise WrongSetting(
                    "OIDC_ROLES", f"must give {group!r} an object of tenants, each viewer, operator or admin"
                )

    def _refuse_both(self) -> None:
        """Refuse a pattern of tasks that would be durable and in the shadow."""
        pairs = ((one, other) for one in self.shadow for other in self.durable)
        if both := [pair for pair in pairs if fnmatchcase(*pair) or fnmatchcase(*reversed(pair))]:
            raise WrongSetting(
                "SHADOW", f"has {both[0][0]!r}, and DURABLE has {both[0][1]!r}: a name is of one of the two"
            )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Conf:
        """Build it from the dictionary; ``WrongSetting`` for an unknown key or a value of the wrong kind."""
        known = {spec.name.upper(): spec for spec in fields(cls)}
        for key in values:
            if key not in known:
                raise WrongSetting(str(key), f"is no setting; known are {', '.join(sorted(known))}")
        read = {known[key].name: _read(known[key], value) for key, value in values.items() if key != "SCHEDULER"}
        cell = {"cell": read.get("cell", "default")}
        return cls(**read, scheduler=_scheduler(cell, values.get("SCHEDULER", {})))


class _Last:
    """The settings read last, and the dictionary they came from."""

    read: tuple[object, Conf] = (None, Conf())


def conf() -> Conf:
    """The present settings: read once, and again when the dictionary was replaced."""
    given = getattr(settings, "SLACKWATER", UNSET)
    last, found = _Last.read
    if last is not given:
        if not isinstance(given, Mapping):
            raise ImproperlyConfigured("SLACKWATER must be a dictionary")
        found = Conf.from_mapping(given)
        _Last.read = (given, found)
    return found


def sealing_keys() -> tuple[str, ...]:
    """The secrets that all processes of the platform share: the first seals, all open."""
    return conf().secrets_keys or ((settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS) if settings.SECRET_KEY else ())


def client_address(peer: str, forwarded_for: str) -> str:
    """The client's address: the peer's, or the one that the nearest trusted proxy names in ``X-Forwarded-For``."""
    proxies = conf().trusted_proxies
    hops = [hop.strip() for hop in forwarded_for.split(",") if hop.strip()] if proxies else []
    return (hops[-min(proxies, len(hops))] if hops else peer)[:64]


def _scheduler(cell: Mapping[str, Any], given: Any) -> SchedulerConf:
    if isinstance(given, SchedulerConf):
        return given
    if not isinstance(given, Mapping):
        raise WrongSetting("SCHEDULER", "must be an object of settings")
    try:
        return SchedulerConf.from_mapping({**cell, **given})
    except ConfigurationError as error:
        if error.field == "cell" and "cell" not in given:
            raise WrongSetting("CELL", error.message) from error
        raise WrongSetting("SCHEDULER", f"cannot be used: {error}") from error


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, str) or hasattr(value, "__fspath__") else None


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _whole(value: Any) -> Any:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _each(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def several(value: Any) -> Any:
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            return None
        found = tuple(read(one) for one in value)
        return None if None in found else found

    return several


KINDS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "str": (_text, "must be text"),
    "bool": (lambda value: value if isinstance(value, bool) else None, "must be true or false"),
    "int": (_whole, "must be a whole number"),
    "float": (_number, "must be a number"),
    "tuple[str, ...]": (_each(_text), "must be a list of texts"),
    "tuple[int, ...]": (_each(_whole), "must be a list of whole numbers"),
    "Mapping[str, Any]": (lambda value: value if isinstance(value, Mapping) else None, "must be an object"),
}
"""By a field's annotation: the reader of its value, which returns ``None`` for another kind, and the refusal's words."""


def _read(spec: Field[Any], given: Any) -> Any:
    read, words = KINDS[str(spec.type)]
    value = read(given)
    if value is None:
        raise WrongSetting(spec.name.upper(), f"{words}, not {type(given).__name__}")
    return value
