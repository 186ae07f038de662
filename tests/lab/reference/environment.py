"""docs/reference/environment.md: every environment variable of the platform, with its default out of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from slackwater.settings.environment import ROOT
from tests.lab.reference.markdown import code, page, table

NAME = re.compile(r"\bSLACKWATER_[A-Z_]+\b")
SETTINGS_FOLDER = ROOT / "platform" / "slackwater" / "settings"

READ = {
    "SLACKWATER_VAR": "All local data: the embedded servers, logs, `demo.env`. Default: `var/` in the project.",
    "SLACKWATER_HOST": "Address the API listens on under `make up`.",
    "SLACKWATER_PORT": "Port of the API under `make up`; 0 takes a free one and prints it.",
    "SLACKWATER_PUBLIC_URL": "How clients reach the platform, where that is not host and port.",
    "SLACKWATER_CELL": "The cell this process belongs to: a set of tenants and nodes with one leading dispatcher.",
    "SLACKWATER_DATABASE_URL": "PostgreSQL, as a libpq URL (`postgresql://user@host/name`, also of a unix socket). "
    "Not set: the embedded server of `make up`.",
    "SLACKWATER_DATABASE_PGBOUNCER": "Say true where PgBouncer in transaction mode stands between.",
    "SLACKWATER_DATABASE_POOL": "Database connections kept in a pool; 0: one for each thread. The API keeps 16.",
    "SLACKWATER_REDIS_URL": "Redis or Valkey (`redis://`, `rediss://`, `unix://`, or "
    "`sentinel://:password@host:port,host:port/0?master=name` for a group with Sentinel). "
    "Not set: the embedded server.",
    "SLACKWATER_SECRET_KEY": "Django's secret key. `make up` makes one and keeps it in `var/`; production must set it.",
    "SLACKWATER_SECRETS_KEYS": "Keys that seal tenants' secrets, comma-separated: the first seals, all open. To change "
    "it, put the new one in front and run `manage.py reseal_secrets`. Not set: derived from `SLACKWATER_SECRET_KEY`.",
    "SLACKWATER_DEBUG": "Django's debug pages. Never in production.",
    "SLACKWATER_ALLOWED_HOSTS": "Host names the API and the admin answer to, comma-separated.",
    "SLACKWATER_CSRF_TRUSTED_ORIGINS": "Origins the admin accepts forms from behind a proxy, comma-separated.",
    "SLACKWATER_SCHEDULER": "Settings of the scheduler as a JSON object: see [settings.md](settings.md).",
    "SLACKWATER_HANDLERS": "Modules a worker imports at its start, comma-separated: what they export can be run. "
    "Python must find them (`PYTHONPATH`, or installed).",
    "SLACKWATER_DEMO_HANDLERS": "Export the small `demo.*` handlers; `make up` does.",
    "SLACKWATER_CAPACITY": "What a worker's machine offers, where it should not be measured: six numbers, "
    "comma-separated: CPU in thousandths, memory MiB, disk MiB, IOPS, kbit/s, ports.",
    "SLACKWATER_LABELS": "Labels a worker's node carries, comma-separated.",
    "SLACKWATER_SCRIPT_SLOTS": "Scripts a worker runs at once; 0: as many as it has pool processes.",
    "SLACKWATER_API_THREADS": "Threads of one API process, each with a database connection of its own.",
    "SLACKWATER_API_MAX_BODY_BYTES": "The largest request body the API reads.",
    "SLACKWATER_ALERTS": "Changes to the rules of alerts, as a JSON object: see [alerts.md](../alerts.md).",
    "SLACKWATER_ALERTS_EVERY_S": "How often it is looked whether something is wrong, in seconds.",
    "SLACKWATER_ALERT_EMAILS": "Who gets alerts by e-mail, comma-separated. Not set: superusers with an address.",
    "SLACKWATER_ALERT_WEBHOOK": "Address that alerts are posted to; private networks are allowed here.",
    "SLACKWATER_ALERT_WEBHOOK_SECRET": "Secret (`whsec_…`) that signs them, as webhooks of tenants are signed.",
    "SLACKWATER_TRUSTED_PROXIES": "How many proxies of yours stand in front and add to `X-Forwarded-For`: the "
    "limit to failed logins goes by the address before them. 0: by the peer's.",
    "SLACKWATER_METRICS_TOKEN": "When set, `/metrics` answers only to who sends it as a bearer token.",
    "SLACKWATER_WEBHOOK_PRIVATE": "Say true to let webhooks be sent into private networks (loopback and link-local "
    "addresses too). Then every tenant can reach what the upkeep process can.",
    "SLACKWATER_TRACE_RATIO": "Of the tasks that come without a trace, the part that begins one: 0 to 1.",
    "SLACKWATER_TRACE_BACKLOG": "Ended tasks whose spans are kept while the collector is away; beyond, the oldest are "
    "given up.",
    "SLACKWATER_EMAIL_URL": "Where notifications by e-mail are handed in: `smtp+tls://user:password@host:587`. "
    "By default they are only written to the log.",
    "SLACKWATER_EMAIL_FROM": "Sender of that e-mail.",
    "SLACKWATER_LOG_LEVEL": "Level of the log.",
    "SLACKWATER_LOG_FORMAT": "`console` for people, `json` for machines (the default in production).",
    "SLACKWATER_LOG_DIR": "A folder in which each slot of a worker also keeps a file of its own, `WORKER-SLOT.log`, "
    "as JSON: 10 MiB, and three older ones.",
    "SLACKWATER_SSL_REDIRECT": "Production: send plain HTTP to HTTPS.",
    "SLACKWATER_HSTS_SECONDS": "Production: how long browsers must insist on HTTPS.",
    "SLACKWATER_STATIC_ROOT": "Production: where the admin's static files were collected. Default: `staticfiles/`.",
}
STANDARD = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "Where a collector takes OTLP over HTTP (`http://collector:4318`). Set, traces are "
    "kept with their tasks and their spans are sent; not set, nothing is.",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "The same for traces alone, with its path (`http://collector:4318/v1/traces`).",
    "OTEL_EXPORTER_OTLP_HEADERS": "Sent with the spans, for example a key; likewise `…_TIMEOUT`, `…_COMPRESSION`, "
    "`…_CERTIFICATE`, `…_CLIENT_CERTIFICATE` and `…_CLIENT_KEY`.",
    "OTEL_SERVICE_NAME": "What the spans are from: `slackwater` where it is not set. "
    "`OTEL_RESOURCE_ATTRIBUTES` adds more.",
    "OTEL_TRACES_EXPORTER": "`none` switches it off; so does `OTEL_SDK_DISABLED=true`.",
}
"""OpenTelemetry's own variables, by its specification."""
STARTING = {
    "SLACKWATER_PYTHON": "The Python `make` builds `.venv/` with; the first of 3.11 or newer it finds when not set.",
}
CLIENTS = {
    "SLACKWATER_URL": "In `var/demo.env`: where the API is. The examples read it.",
    "SLACKWATER_KEY": "In `var/demo.env`: the demo tenant's key. The examples read it.",
}
SCRIPTS = {
    "SLACKWATER_TASK_ID": "Id of the task.",
    "SLACKWATER_ATTEMPT": "1 for the first run.",
    "SLACKWATER_PORTS": "Where its tier has ports: the numbers it is given, separated by commas.",
    "SLACKWATER_MUTEX_FENCE": "Number of its hold on its mutex key, where it has one; it rises with every "
    "grant of the key, whichever task gets it.",
    "SLACKWATER_FENCE": "Number of the claim; it only rises. A receiver that remembers the highest "
    "can refuse a late sender.",
    "SLACKWATER_INPUTS": 'File with the inputs: `{"args": […], "kwargs": {…}, "upstream": {name: result}}`.',
    "SLACKWATER_SECRET_": "Followed by the name of a secret of the tenant: its value. Logs show `***` in its place.",
    "SLACKWATER_ARTIFACTS": "Folder for files to leave behind, which clients download; not those with a dot first.",
    "SLACKWATER_RESULT": "File to write the result to, as JSON; none means no result.",
}
SCRIPTS_STANDARD = {
    "TRACEPARENT": "The trace its task belongs to, where it belongs to one (and `TRACESTATE`): spans begun under it "
    "are children of this attempt's.",
}
INTERNAL = {
    "SLACKWATER_SUPERVISOR": "Marks the processes of one `make up`, so that none is left behind.",
    "SLACKWATER_RUN": "Marks the processes of one script's run, so that its whole tree can be ended.",
    "SLACKWATER_BOOTSTRAP_LOCKED": "Keeps two `make` of one folder from installing at once.",
    "SLACKWATER_TEST_RUN": "Tells apart the databases of two test runs on one server.",
}
CATALOGUE = READ | STARTING | CLIENTS | SCRIPTS | INTERNAL
"""Name -> what it does. A variable the code reads and this does not name fails a test, and so does the reverse."""


def render() -> str:
    """The page."""
    known = defaults()
    settings = ((code(name), code(known.get(name, "")), said) for name, said in READ.items())
    return page(
        "Environment variables",
        "`tests/lab/reference/environment.py` and the settings",
        "The environment is read once, in `platform/slackwater/settings/`. Which of its three sets holds says "
        "`DJANGO_SETTINGS_MODULE`: `slackwater.settings.embedded` (the default: one machine, servers of its own), "
        "`slackwater.settings.production` or `slackwater.settings.test`.",
        "## Read by every process",
        table(("variable", "default", "what it does"), settings),
        "## OpenTelemetry's own variables",
        "To be set for every process of the platform: see [traces](../how-to/traces.md).",
        _pairs(STANDARD),
        "## Read by `make`",
        _pairs(STARTING),
        "## Written for clients",
        _pairs(CLIENTS),
        "## What a script finds in its environment",
        _pairs(SCRIPTS | SCRIPTS_STANDARD),
        "## Set by the platform for itself",
        "Leave these alone.",
        _pairs(INTERNAL),
    )


def _pairs(said: dict[str, str]) -> str:
    return table(("variable", "what it is"), ((code(name), text) for name, text in said.items()))


def defaults() -> dict[str, str]:
    """Default of each variable the settings read, where it is a literal; base's where several settings name one."""
    found: dict[str, str] = {}
    for path in sorted(SETTINGS_FOLDER.glob("*.py"), key=lambda path: (path.stem != "base", path.stem)):
        for name, default in _reads(path):
            found.setdefault(name, default)
    return found


def _reads(path: Path) -> Iterator[tuple[str, str]]:
    """Calls of the shape ``env.str("NAME", default=…)`` in a file: (name, default)."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        first = node.args[0] if node.args else None
        if not (isinstance(first, ast.Constant) and isinstance(first.value, str) and NAME.fullmatch(first.value)):
            continue
        literal = [k.value for k in node.keywords if k.arg == "default"]
        try:
            value = ast.literal_eval(literal[0]) if literal else ""
        except ValueError:
            value = ""
        yield first.value, "" if value in ("", []) else str(value)
