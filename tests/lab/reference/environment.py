"""docs/reference/environment.md: every environment variable of the platform, with its default out of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from slackwater.settings.place import ROOT
from slackwater_conf import Conf
from tests.lab.reference.markdown import attribute_docs, code, page, plain, table

NAME = re.compile(r"\bSLACKWATER_[A-Z_]+\b")
SETTINGS_FOLDER = ROOT / "platform" / "slackwater" / "settings"

SERVICE = {
    "SLACKWATER_DATABASE_URL": "PostgreSQL, as a libpq URL (`postgresql://user@host/name`, also of a unix socket). "
    "Not set: the embedded server of `make up`.",
    "SLACKWATER_DATABASE_PGBOUNCER": "Say true where PgBouncer in transaction mode stands between.",
    "SLACKWATER_DATABASE_POOL": "Database connections kept in a pool; 0: one for each thread. The API keeps 16.",
    "SLACKWATER_SECRET_KEY_FALLBACKS": "Other secret keys that are believed too, comma-separated: the new one before it "
    "becomes the first, the old one after that.",
    "SLACKWATER_SECRET_KEY": "Django's secret key. `make up` makes one and keeps it in `var/`; production must set it.",
    "SLACKWATER_DEBUG": "Django's debug pages. Never in production.",
    "SLACKWATER_ALLOWED_HOSTS": "Host names the API and the admin answer to, comma-separated.",
    "SLACKWATER_CSRF_TRUSTED_ORIGINS": "Origins the admin accepts forms from behind a proxy, comma-separated.",
    "SLACKWATER_EMAIL_URL": "Where notifications by e-mail are handed over: `smtp+tls://user:password@host:587`. "
    "By default they are only written to the log.",
    "SLACKWATER_LOG_LEVEL": "Level of the log.",
    "SLACKWATER_LOG_FORMAT": "`console` for people, `json` for machines (the default in production).",
    "SLACKWATER_SSL_REDIRECT": "Production: send plain HTTP to HTTPS.",
    "SLACKWATER_HSTS_SECONDS": "Production: how long browsers must insist on HTTPS.",
    "SLACKWATER_CELERY_APP": "In the image: the Celery application whose worker its part `worker` starts, as `celery -A` "
    "takes it: `shop`. Not set: the platform's own.",
    "SLACKWATER_STATIC_ROOT": "Production: where the admin's static files were collected. Default: `staticfiles/`.",
}
"""What fills Django's own settings, and those of the databases."""
READ = {
    f"SLACKWATER_{name.upper()}": plain(text) for name, text in attribute_docs(Conf).items() if name != "trace_endpoint"
} | SERVICE
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
    "SLACKWATER_URL": "Where the platform's API is: read by the client and the command `slackwater`. `var/demo.env` has it.",
    "SLACKWATER_KEY": "The API key that they send. `var/demo.env` has that of the demo tenant.",
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
        "`slackwater.settings.production` "
        "or `slackwater.settings.test`. A variable that is empty "
        "says the same as one that is not set; one that says true or false is `true`, `on`, `yes` or `1`, or `false`, `off`, "
        "`no` or `0`; what cannot be is refused at the start by its name.",
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
    ours = {f"SLACKWATER_{spec.name.upper()}": spec.default for spec in fields(Conf) if spec.name != "trace_endpoint"}
    found = {name: str(value) for name, value in ours.items() if isinstance(value, (str, int, float))}
    found |= dict.fromkeys(("SLACKWATER_VAR", "SLACKWATER_REDIS_URL"), "")  # the service finds its own
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
