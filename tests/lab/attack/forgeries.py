"""What somebody who can write to Redis may send: forged and broken messages, entries and keys, one function each.

An attacker of this kind reads Redis too, and knows names, ids and the protocol; only the platform's key is not there.
"""

from __future__ import annotations

import json
import pickle
import time
import uuid
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import redis

NOTHING: Final = "nothing"
"""Expected of what is taken, and neither does anything nor need be counted."""
RANDOM: Final = "0189f7ea-ae2c-7809-8aeb-b819cf5e9e7f"


class NoPrey(Exception):
    """There is nothing of which this could be made just now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prey:
    """What an attacker in Redis finds there, and whom it is about."""

    client: redis.Redis
    node: int
    waiting: str
    """A task that is to begin tomorrow."""
    ended: str
    """One that has succeeded with its first claim."""
    tenant: int
    patience_s: float = 20.0

    def key(self, name: str) -> str:
        """A key of the scheduler's own."""
        return f"{{sw}}:{name}"

    @property
    def queues(self) -> tuple[str, str]:
        """The Celery queues that its worker listens to."""
        return "slackwater", f"slackwater.node.{self.node}"

    def put(self, item: bytes | str, queue: int = 1) -> None:
        """Lay an item into a Celery queue."""
        self.client.lpush(self.queues[queue], item)

    def order(self, body: Any, kind: str = "application/json", **more: Any) -> None:
        """Give a command of remote control."""
        number = self.client.connection_pool.connection_kwargs.get("db", 0)
        self.client.publish(f"/{number}.celery.pidbox", envelope(body, {"clock": 10**12}, kind, **more))

    def claim(self, *entries: bytes | str, kind: str = "process") -> None:
        """Lay claims into the node's queue."""
        self.client.lpush(self.key(f"claims:{self.node}:{kind}:urgent"), *entries)

    def tell(self, rows: Any, place: str = "*", **more: Any) -> None:
        """Add to the feed of changes."""
        text = rows if isinstance(rows, str) else json.dumps(rows)
        fields: Any = {"c": text, **more}
        self.client.xadd(self.key("changes"), fields, id=place)


def envelope(body: Any, headers: Any, kind: str = "application/json", **properties: Any) -> str:
    """A message as kombu lays it into Redis."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {
        "correlation_id": "c", "reply_to": "", "delivery_mode": 2, "priority": 0, "body_encoding": "base64",
        "delivery_info": {"exchange": "", "routing_key": "slackwater"}, "delivery_tag": str(uuid.uuid4()),
    }  # fmt: skip
    return json.dumps({
        "body": b64encode(raw).decode(), "content-encoding": "utf-8", "content-type": kind, "headers": headers,
        "properties": {**given, **properties},
    })  # fmt: skip


def task(name: Any, *args: Any, kind: str = "application/json", body: Any = None, **headers: Any) -> str:
    """A message of Celery's second protocol."""
    told = {"lang": "py", "task": name, "id": str(uuid.uuid4()), "retries": 0, "eta": None, "expires": None,
            "root_id": RANDOM, "timelimit": [None, None], "argsrepr": "", "kwargsrepr": "", "origin": "x", **headers}  # fmt: skip
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    return envelope(body if body is not None else [args, {}, embed], told, kind)


def taken_over(prey: Prey, name: str) -> str:
    """A message of the platform's own, with its seal, that is made to say another task."""
    until = time.monotonic() + prey.patience_s
    while (own := _token(prey)) is None:
        if time.monotonic() > until:
            raise NoPrey("a token of the platform's own")
        time.sleep(0.01)
    own["headers"]["task"] = name
    own["body"] = b64encode(json.dumps([["forged"], {}, {}]).encode()).decode()
    return json.dumps(own)


def _token(prey: Prey) -> Any:
    held: Any = prey.client.hvals("unacked")
    lying: Any = prey.client.lrange(prey.queues[1], 0, 0)
    return next((one for one in (*map(_message, held), *map(_message, lying)) if one is not None), None)


def _message(text: bytes) -> Any:
    """A message of a task, as it lies in a queue or among the unacknowledged; ``None`` for what is no such thing."""
    try:
        found = json.loads(text)
        found = found[0] if isinstance(found, list) else found
        return found if isinstance(found["headers"], dict) and isinstance(found["properties"], dict) else None
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def command(name: str, seal: Any = None, **arguments: Any) -> dict[str, Any]:
    """A command of remote control to all."""
    given = {**arguments, **({"slackwater": seal} if seal else {})}
    return {"method": name, "arguments": given, "destination": None, "pattern": None, "matcher": None}


DEEP: Final = "[" * 200_000
SEAL: Final = {"nonce": "0" * 24, "seal": "0" * 32, "at": 4e9}
SHAPE: Final = {"body": "", "headers": {}, "properties": {"delivery_tag": "t", "delivery_info": {}}}


def _items() -> dict[str, tuple[str, Callable[[Prey], Any]]]:
    """Messages and what is none, in Celery's queues."""
    signature: dict[str, Any] = {
        "task": "prey.plain",
        "args": ["forged"],
        "kwargs": {},
        "options": {},
        "subtask_type": None,
    }
    return {
        "a message for a handler": ("message", lambda p: p.put(task("prey.note", "forged"), 0)),
        "a message for an ordinary task": ("message", lambda p: p.put(task("prey.plain", "forged"), 0)),
        "one with an invented seal": ("message", lambda p: p.put(task("prey.plain", "forged", slackwater=SEAL))),
        "one with a token's seal": ("message", lambda p: p.put(taken_over(p, "prey.plain"))),
        "a token without a seal": ("message", lambda p: p.put(task("slackwater.slice", 10**12))),
        "celery.chord_unlock": ("message", lambda p: p.put(task("celery.chord_unlock", "g", signature), 0)),
        "celery.map": ("message", lambda p: p.put(task("celery.map", signature, [["forged"]]), 0)),
        "celery.group": ("message", lambda p: p.put(task("celery.group", [signature], "r", "g"), 0)),
        "celery.backend_cleanup": ("message", lambda p: p.put(task("celery.backend_cleanup"), 0)),
        "a task that there is none of": ("message", lambda p: p.put(task("no.such.task", "forged"), 0)),
        "a task whose name is a list": ("message", lambda p: p.put(task(["prey.plain"], "forged"), 0)),
        "a message of the first protocol": (
            "message",
            lambda p: p.put(envelope({"task": "prey.plain", "id": "x", "args": ["forged"], "kwargs": {}}, {}), 0),
        ),
        "a pickled message": (
            "message",
            lambda p: p.put(task("slackwater.slice", body=pickle.dumps(Bomb()), kind="application/x-python-serialize")),
        ),
        "a message of a foreign type": ("message", lambda p: p.put(task("prey.plain", "forged", kind="text/x-yaml"))),
        "a compressed bomb": (
            "message",
            lambda p: p.put(
                task("prey.plain", body=zlib.compress(b"0" * 10_000_000), compression="application/x-gzip")
            ),
        ),
        "a message that leads on": (
            "message",
            lambda p: p.put(
                task("prey.plain", body=[["forged"], {}, {"callbacks": [signature], "chain": [signature]}])
            ),
        ),
        "not JSON": ("broken", lambda p: p.put("not json at all")),
        "nothing at all": ("broken", lambda p: p.put("")),
        "bytes that are no text": ("broken", lambda p: p.put(b"\xff\xfe\x00")),
        "null": ("broken", lambda p: p.put("null")),
        "a number": ("broken", lambda p: p.put("5")),
        "a list": ("broken", lambda p: p.put("[1, 2]")),
        "an empty message": ("broken", lambda p: p.put("{}")),
        "a message nested deeply": ("broken", lambda p: p.put(DEEP)),
        "a message without properties": ("broken", lambda p: p.put(json.dumps({**SHAPE, "properties": None}))),
        "a message whose headers are a text": ("broken", lambda p: p.put(json.dumps({**SHAPE, "headers": "x"}))),
        "a message whose tag is an object": ("broken", lambda p: p.put(envelope({}, {}, delivery_tag={"a": 1}))),
        "a body in no known encoding": ("broken", lambda p: p.put(envelope({}, {}, body_encoding="rot13"))),
        "a hundred megabytes": ("broken", lambda p: p.put(b'"' + b"x" * 100_000_000 + b'"')),
        "a text where the queue was": ("broken", lambda p: _replace(p, p.queues[1])),
        "a text where unacknowledged messages are": ("broken", lambda p: _replace(p, "unacked")),
    }


def _orders() -> dict[str, tuple[str, Callable[[Prey], Any]]]:
    """Commands of remote control."""
    answer = {"exchange": "slackwater", "routing_key": "slackwater"}
    return {
        "shutdown": ("control", lambda p: p.order(command("shutdown"))),
        "shutdown with an invented seal": ("control", lambda p: p.order(command("shutdown", SEAL))),
        "pool_shrink": ("control", lambda p: p.order(command("pool_shrink", n=100))),
        "pool_restart": ("control", lambda p: p.order(command("pool_restart"))),
        "add_consumer": ("control", lambda p: p.order(command("add_consumer", queue="evil"))),
        "cancel_consumer": ("control", lambda p: p.order(command("cancel_consumer", queue=p.queues[1]))),
        "revoke": ("control", lambda p: p.order(command("revoke", task_id=RANDOM, terminate=True))),
        "rate_limit": (
            "control",
            lambda p: p.order(command("rate_limit", task_name="slackwater.slice", rate_limit="1/h")),
        ),
        "a command that there is none of": ("control", lambda p: p.order(command("__class__"))),
        "a command that is a list": ("control", lambda p: p.order([1, 2, 3])),
        "an answer into the workers' queue": (
            "control",
            lambda p: p.order({**command("ping"), "reply_to": answer, "ticket": "t"}),
        ),
        "a command that is not JSON": ("broken", lambda p: p.client.publish("/0.celery.pidbox", "not json")),
        "a pickled command": ("broken", lambda p: p.order(pickle.dumps(Bomb()), "application/x-python-serialize")),
        "ping": (NOTHING, lambda p: p.order(command("ping"))),
    }


def _claims() -> dict[str, tuple[str, Callable[[Prey], Any]]]:
    """Entries of the node's own queues, hints and marks."""
    return {
        "a claim of a task that waits": (NOTHING, lambda p: p.claim(*(f"1:{p.waiting}:{n}" for n in range(20)))),
        "a claim of a task that has ended": (NOTHING, lambda p: p.claim(*(f"1:{p.ended}:{n}" for n in range(20)))),
        "claims of scripts that are none": (NOTHING, lambda p: p.claim(f"1:{p.waiting}:0", kind="script")),
        "five thousand claims of nothing": (
            NOTHING,
            lambda p: p.claim(*(f"1:{uuid.UUID(int=n)}:1" for n in range(5_000))),
        ),
        "an entry that is no claim": ("claim", lambda p: p.claim("x", "", "1:2:3", "::", b"\xff")),
        "an entry of a megabyte": ("claim", lambda p: p.claim("1:" + "a" * 1_000_000 + ":1")),
        "a fence that is none": ("claim", lambda p: p.claim(f"1:{p.waiting}:-1", f"1:{p.waiting}:99999999999999")),
        "SQL in a claim": ("claim", lambda p: p.claim(f"1:{p.waiting}'); DROP TABLE x; --:1")),
        "a script's entry that is no claim": ("claim", lambda p: p.claim("x", DEEP, kind="script")),
        "a text where claims are": ("claim", lambda p: _replace(p, p.key(f"claims:{p.node}:process:urgent"))),
        "hints without end": (NOTHING, lambda p: _shout(p, p.key("hints:default"))),
        "words to the node without end": (NOTHING, lambda p: _shout(p, p.key(f"control:{p.node}"))),
        "no epoch": (NOTHING, lambda p: p.client.delete(p.key("epoch:default"))),
        "a lock in nobody's name": (NOTHING, lambda p: p.client.set(p.key("mutex:x"), b"\xff")),
        "a refusal of a tenant": (NOTHING, lambda p: p.client.set(p.key(f"refused:{p.tenant}"), b"\xff", px=10**12)),
    }


def _changes() -> dict[str, tuple[str, Callable[[Prey], Any]]]:
    """Entries of the feed of changes, which an API process follows."""
    return {
        "a change that never was": ("change", lambda p: p.tell([[p.waiting, 6, p.tenant, None]])),
        "one with an invented seal": (
            "change",
            lambda p: p.tell([[p.ended, 8, p.tenant, None]], t="1", s="0" * 32),
        ),
        "a change of types that cannot be": ("change", lambda p: p.tell([[{}, "x", [], {}, {}, 5], 5, None])),
        "a change nested deeply": ("change", lambda p: p.tell(DEEP)),
        "an entry of other fields": ("change", lambda p: p.client.xadd(p.key("changes"), {"x": b"\xff"})),
        "true changes once more": ("change", _once_more),
        "an entry of the far future": ("change", lambda p: p.tell([], f"{2**63}-1")),
        "a text where the feed is": ("change", lambda p: _replace(p, p.key("changes"))),
    }


def _once_more(prey: Prey) -> None:
    """Add everything again that the platform wrote, in its order."""
    found: Any = prey.client.xrange(prey.key("changes"))
    with prey.client.pipeline(transaction=False) as pipeline:
        for _, fields in found:
            pipeline.xadd(prey.key("changes"), fields)
        pipeline.execute()


def _replace(prey: Prey, key: str) -> None:
    prey.client.set(key, "no such thing")


def _shout(prey: Prey, channel: str) -> None:
    with prey.client.pipeline(transaction=False) as pipeline:
        for _ in range(300):
            for word in (b"cancel", b"state", b"\xff" * 10_000, b""):
                pipeline.publish(channel, word)
        pipeline.execute()


class Bomb:
    """Tells of itself when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("import os; open(os.environ['ATTACK_WITNESS'], 'a').write('forged: unpickled\\n')",))


Forgery = tuple[str, Callable[[Prey], Any]]
BY_PLACE: Final[Mapping[str, Mapping[str, Forgery]]] = {
    "queue": _items(), "control": _orders(), "claims": _claims(), "feed": _changes(),
}  # fmt: skip
FORGERIES: Final[Mapping[str, Forgery]] = {
    f"{place}: {name}": forgery for place, found in BY_PLACE.items() for name, forgery in found.items()
}
"""By name: what is counted of it, and how it is sent."""
