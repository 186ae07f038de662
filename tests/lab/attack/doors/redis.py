"""Redis in the hands of an attacker: each forgery on a platform that has to go on working."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from tests.lab.attack.forgeries import FORGERIES, NOTHING, Prey
from tests.lab.attack.ground import Ground
from tests.lab.attack.probes import add
from tests.support.waiting import wait_until

COUNTED_S = 30.0
SHORT = frozenset({
    "queue: a message for a handler", "queue: one with a token's seal", "queue: not JSON", "queue: a pickled message",
    "control: shutdown", "control: an answer into the workers' queue", "claims: a claim of a task that waits",
    "claims: an entry that is no claim", "feed: a change that never was", "feed: true changes once more",
})  # fmt: skip


def call(ground: Ground, path: str, body: Any = None) -> Any:
    """The API, as the demo tenant."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if data else {}
    answer = ground.ask(f"/api/v1{path}", "GET" if body is None else "POST", body=data, headers=headers, key=True)
    return json.loads(answer.body)


def works(ground: Ground) -> str:
    """A task that has just run; fails when none does."""
    made = call(ground, "/tasks", {"handler": "prey.note", "args": ["well"]})
    state = call(ground, f"/tasks/{made['id']}?wait=30")["state"]
    if state != "succeeded":
        raise AssertionError(f"a task submitted afterwards is {state}")
    return str(made["id"])


def prey(ground: Ground) -> Prey:
    """What an attacker finds in Redis."""
    client = ground.redis()
    found: Any = client.keys("_kombu.binding.slackwater.node.*")
    start_at = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    waiting = call(
        ground, "/tasks", {"handler": "prey.note", "args": ["forged: before its time"], "start_at": start_at}
    )
    return Prey(
        client=client, node=max(int(name.rpartition(b".")[2]) for name in found), waiting=waiting["id"],
        ended=works(ground), tenant=1,
    )  # fmt: skip


def counts(ground: Ground) -> dict[str, float]:
    """What was refused, by kind."""
    families = list(text_string_to_metric_families(ground.ask("/metrics").body.decode()))
    found = next(one for one in families if one.name == "slackwater_refused_from_redis")
    return {sample.labels["kind"]: sample.value for sample in found.samples}


@contextlib.contextmanager
def streaming(ground: Ground) -> Iterator[None]:
    """Somebody follows the tenant's tasks, so that the API follows the feed."""
    parts = urlsplit(ground.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    with contextlib.closing(connection):
        connection.request(
            "GET", "/api/v1/events", headers={"Authorization": f"Bearer {ground.setting('SLACKWATER_KEY')}"}
        )
        connection.getresponse().read1()
        yield


def strike(expected: str, send: Callable[[Prey], Any], ground: Ground) -> str:
    """Send one forgery; returns the kind under which it was counted, once the platform has run a task again."""
    with streaming(ground):
        target = prey(ground)
        before = counts(ground)
        send(target)
        if expected != NOTHING:
            what = f"{expected} is counted"
            wait_until(
                lambda: counts(ground)[expected] > before[expected], timeout=COUNTED_S, interval=0.5, message=what
            )
        works(ground)
        state = call(ground, f"/tasks/{target.waiting}/status")["state"]
    ran = [line for line in ground.witness.read_text().splitlines() if line.startswith("forged")]
    if ran or state != "scheduled":
        return f"{ran} ran, the task that waits is {state}"
    return expected


for _name, (_expected, _send) in FORGERIES.items():
    _words = f"Into Redis is written: {_name.partition(': ')[2]}."
    add("redis", _name, _words, _expected, partial(strike, _expected, _send), long=_name not in SHORT)
