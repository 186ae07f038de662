"""Flower: what a web page in the operator's browser, or a user of the machine, can do with it."""

from __future__ import annotations

import json
import stat
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import urlsplit

import psutil

from tests.lab.attack.ground import Answer, Ground
from tests.lab.attack.probes import probe
from tests.support.waiting import wait_until

WAYS = {
    "shutdown": "/api/worker/shutdown/{worker}",
    "pool restart": "/api/worker/pool/restart/{worker}",
    "pool shrink": "/api/worker/pool/shrink/{worker}?n=1",
    "pool grow": "/api/worker/pool/grow/{worker}?n=50",
    "add consumer": "/api/worker/queue/add-consumer/{worker}?queue=evil",
    "cancel consumer": "/api/worker/queue/cancel-consumer/{worker}?queue=slackwater",
    "send a task": "/api/task/send-task/prey.plain",
    "apply": "/api/task/async-apply/prey.plain",
    "revoke": "/api/task/revoke/0189f7ea-ae2c-7809-8aeb-b819cf5e9e7f?terminate=true",
    "rate limit": "/api/task/rate-limit/slackwater.slice?workername={worker}&ratelimit=1/h",
    "timeout": "/api/task/timeout/slackwater.slice?workername={worker}&hard=1",
}


def password(ground: Ground) -> str:
    """What stands in its file."""
    return (ground.var / "flower.password").read_text().strip()


def ask(ground: Ground, path: str, method: str = "GET", *, known: bool = True, body: bytes | None = None,
        headers: Mapping[str, str] | None = None) -> Answer:  # fmt: skip
    """Ask Flower; ``known``: with the password."""
    given = {"Authorization": f"Basic {b64encode(f'admin:{password(ground)}'.encode()).decode()}"} if known else {}
    return ground.ask(path, method, body=body, base=ground.flower, headers={**given, **(headers or {})})


def worker(ground: Ground) -> str:
    """The name of the worker, as somebody with the password reads it."""
    found: dict[str, object] = wait_until(lambda: json.loads(ask(ground, "/api/workers?refresh=1").body))
    return next(iter(found))


@probe("flower", expected="401 401 401 401")
def anything_without_a_password(ground: Ground) -> str:
    """Workers, tasks, pages and metrics are asked for without a password."""
    paths = ("/api/workers", "/api/tasks", "/workers", "/metrics")
    return " ".join(str(ask(ground, path, known=False).status) for path in paths)


@probe("flower", expected="401 401 401")
def a_wrong_password(ground: Ground) -> str:
    """Other names, other passwords and an empty one are tried."""
    tries = [b64encode(text.encode()).decode() for text in ("admin:admin", f"root:{password(ground)}", "admin:")]
    headers = [{"Authorization": f"Basic {text}"} for text in tries]
    return " ".join(str(ask(ground, "/api/workers", known=False, headers=one).status) for one in headers)


@probe("flower", expected="200 200 200")
def the_operator(ground: Ground) -> str:
    """Who has the password sees workers, pages and metrics."""
    worker(ground)
    return " ".join(str(ask(ground, path).status) for path in ("/api/workers", "/workers", "/metrics"))


@probe("flower", expected="421 421")
def a_foreign_host(ground: Ground) -> str:
    """A name that was made to point here (DNS rebinding) is asked, with the password."""
    port = urlsplit(ground.flower).port
    hosts = ("rebind.evil.example", f"127.0.0.1.evil.example:{port}")
    return " ".join(str(ask(ground, "/api/workers", headers={"Host": host}).status) for host in hosts)


@probe("flower", expected="403 403 403")
def a_foreign_page(ground: Ground) -> str:
    """Another site's page asks, and the browser adds the password that it knows."""
    simple = {"Content-Type": "text/plain", "Origin": "https://evil.example"}
    way = WAYS["shutdown"].format(worker="w")
    asked = [
        ask(ground, way, "POST", body=b"", headers=simple),
        ask(ground, "/api/workers", headers={"Origin": "null"}),
        ask(ground, way, "POST", body=b"", headers={"Sec-Fetch-Site": "cross-site"}),
    ]
    return " ".join(str(answer.status) for answer in asked)


@probe("flower", expected="nothing was done")
def every_command_with_the_password(ground: Ground) -> str:
    """Who has the password (or stole it) tries to stop, to change and to run."""
    name = worker(ground)
    body = json.dumps({"args": ["by Flower"]}).encode()
    answers = {
        what: ask(ground, way.format(worker=name), "POST", body=body, headers={"Content-Type": "application/json"})
        for what, way in WAYS.items()
    }
    done = [f"{what}: {answer.status}" for what, answer in answers.items() if answer.status < 400]
    if ground.witness.exists() and "by Flower" in ground.witness.read_text():
        done.append("a task ran")
    return "; ".join(done) or "nothing was done"


@probe("flower", expected="0600, on no command line, and no key")
def its_password(ground: Ground) -> str:
    """A user of the machine looks at files and command lines."""
    mode = stat.S_IMODE((ground.var / "flower.password").stat().st_mode)
    family = psutil.Process(ground.process.pid).children(recursive=True)
    shown = [one for one in family if password(ground) in " ".join(one.cmdline())]
    flower = [one for one in family if "slackwater.flower" in one.cmdline()]
    keys = [one for one in flower if one.environ().get("SLACKWATER_SECRET_KEY")]
    told = f"{'on a' if shown else 'on no'} command line, and {'a' if keys or not flower else 'no'} key"
    return f"0{mode:o}, {told}"
