"""The web side of a plain Celery project without a database: calls durable tasks over REST, and prints what came of them.

A script: ``python -m tests.support.away URL KEY FOLDER``. Its broker is nowhere, so that whatever is published raises.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from celery import Celery, chain, chord, group

import slackwater

NOWHERE = "redis://127.0.0.1:1/0"


def elsewhere(*args: Any, **kwargs: Any) -> None:
    """What another machine runs."""


def made(url: str, key: str) -> Any:
    """An application with the tasks' names, as another machine has them."""
    app = Celery("shop", broker=NOWHERE, set_as_current=False)
    for name in ("add", "total", "once", "soft", "nests", "nobodys"):
        setattr(app, name, app.task(name=f"calls.{name}", typing=False, shared=False)(elsewhere))
    slackwater.install(app, url=url, key=key, durable=["calls.*"])
    return app


def raised(call: Callable[[], Any]) -> list[str]:
    """The class and the text of the error that a call raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return [type(error).__name__, str(error)]
    return []


def story(url: str, key: str, folder: str) -> dict[str, Any]:
    """All that is called, and what came of it."""
    app = made(url, key)
    add, total = app.add, app.total
    found: dict[str, Any] = {"delay": add.delay(2, 3).get(timeout=60)}
    found["by_name"] = app.send_task("calls.add", (2, 4)).get(timeout=60)
    found["options"] = add.apply_async((2, 5), countdown=0.1, priority=3, headers={"who": "ann"}).get(timeout=60)
    pair = group(add.s(1, 1), add.s(2, 2)).delay()
    found["group"] = pair.get(timeout=60)
    found["chain"] = chain(add.s(1, 2), add.s(10)).delay().get(timeout=60)
    found["chord"] = chord([add.s(1, 2), add.s(3, 4)])(total.s()).get(timeout=60)
    at = datetime(2026, 11, 23, 7, tzinfo=UTC)
    soft = app.soft.apply_async((at, [Decimal("1.10"), Decimal("2.20")]), soft_time_limit=0.3, headers={"who": "ann"})
    values = soft.get(timeout=60)
    found["values"] = [values["at"] == at, values["sum"] == Decimal("3.30"), values["headers"]]
    wrong = app.once.delay(folder)
    found["failure"] = raised(lambda: wrong.get(timeout=60))
    steps, header = chain(app.once.s(folder), add.s(1)), chord([add.s(1, 2), app.once.s(folder)], total.s())
    found["cannot come"] = [raised(partial(given.delay().get, timeout=60)) for given in (steps, header)]
    found["states"] = [wrong.state, wrong.failed(), wrong.successful(), wrong.ready(), str(wrong.result)]
    parent = app.nests.delay(folder)
    said = parent.get(timeout=60)
    found["children"] = {said["delay"], said["by_name"], *said["group"]} <= {one.id for one in parent.children}
    once = [add.apply_async((3, 4), slackwater={"idempotency_key": "order-7"}).id for _ in range(2)]
    found["once"] = once[0] == once[1]
    found["linked"] = add.apply_async((1, 2), link=add.s(3)).get(timeout=60)
    late = add.apply_async((2, 6), countdown=3600)
    found["pending"] = [late.state, late.ready()]
    found["timeout"] = raised(lambda: late.get(timeout=0.2))
    late.revoke()
    found["revoked"] = [late.state, *raised(lambda: late.get(timeout=60))]
    gone = add.delay(2, 7)
    before = gone.get(timeout=60)
    gone.forget()
    found["forgotten"] = [before, add.AsyncResult(gone.id).result]
    found["unknown"] = raised(lambda: app.nobodys.delay(1))
    found["option"] = raised(lambda: add.apply_async((1, 2), task_id="mine"))
    found["wrong key"] = raised(lambda: made(url, "sw_wrong").add.delay(1, 2))
    found["away"] = raised(lambda: made("http://127.0.0.1:1", key).add.delay(1, 2))
    found["django"] = "django.conf" in sys.modules
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(story(*sys.argv[1:])) + "\n")
