"""Canvases that were called before their tasks became durable go on as Celery's, and what their tasks call is durable."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from slackwater_tasks.models import Task
from tests.e2e.test_shop import plain
from tests.support.platform import Platform
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

FLIGHT = """
import os
from celery import Celery, chain, chord, group
import slackwater

app = Celery("flight", broker=os.environ["SHOP_REDIS"], backend=os.environ["SHOP_REDIS"])
app.conf.result_extended = True

def note(line):
    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{line}\\n")

@app.task(name="flight.add")
def add(x, y):
    return x + y

@app.task(name="flight.total")
def total(values):
    return sum(values)

@app.task(name="flight.boom")
def boom(*_):
    raise ValueError("boom")

@app.task(name="flight.tell")
def tell(value, *_):
    note(f"told {value}")
    return value

@app.task(name="flight.heard")
def heard(task_id):
    note(f"heard {task_id}")

@app.task(name="flight.again", bind=True, max_retries=1)
def again(self, value):
    if self.request.retries == 0:
        raise self.retry(countdown=0.1)
    return value

@app.task(name="flight.becomes", bind=True)
def becomes(self, value, many=False):
    return self.replace(chain(add.s(value, 1), again.s(), add.s(1)) if many else add.s(value, 1))

@app.task(name="flight.calls")
def calls(value):
    add.delay(value, 100)
    chain(add.s(value, 200), add.s(1)).delay()
    return value

@app.task(name="flight.told", bind=True, max_retries=5)
def told(self, fail=False):
    if fail:
        raise ValueError("no")
    return [self.request.headers, self.request.timelimit, self.request.retries]

@app.task(name="other.through")
def through(value):
    return value

if os.environ.get("DURABLE_HERE", "yes") == "yes":
    slackwater.install(app, database_url=os.environ["PLAIN_DATABASE"], key="a key", tenant="acme", durable=["flight.*"])
"""
BEGUN = """
import json, time
from celery import chain, chord, group
from flight import add, again, becomes, boom, calls, heard, tell, through, total

def told(result):  # asks: a caller that is told by Redis alone may miss it
    ends = time.monotonic() + 60
    while not result.ready() and time.monotonic() < ends:
        time.sleep(0.05)
    return result.get(timeout=1)

def error(result):
    try:
        told(result)
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"

pair = group(add.si(1, 2), add.si(3, 4))
begun = {
    "chain": add.s(1, 2) | add.s(2) | add.s(1),
    "two": add.s(1, 2) | add.s(2),
    "chord": chord([add.s(1, 2), add.s(3, 4)], total.s()),
    "chord of chains": chord([add.s(1, 2) | add.s(1), add.s(3, 4) | add.s(1)], total.s() | add.s(1)),
    "group inside": add.s(1, 2) | group(add.s(1), add.s(2)) | total.s() | add.s(1),
    "group last": add.s(1, 2) | group(add.s(1), add.s(2) | add.s(3)),
    "ordinary": through.s(1) | through.s() | add.s(2) | through.s() | add.s(1),
    "retry": add.s(1, 2) | again.s() | add.s(1),
    "replace": add.s(1, 2) | becomes.s() | add.s(1),
    "replace many": add.s(1, 2) | becomes.s(many=True) | add.s(1),
    "calls": add.s(1, 2) | calls.s() | add.s(1),
}
results = {name: canvas.delay() for name, canvas in begun.items()}
linked = chain(add.s(1, 2), add.s(2).on_error(heard.s())).apply_async(link=[tell.s(), tell.s(0)])
failed = {
    "chain": chain(add.si(1, 2), boom.s().on_error(heard.s()), add.s(1)).delay(),
    "chord": chord([add.s(1, 2), boom.s()], total.s().on_error(heard.s())).delay(),
}
found = {name: told(result) for name, result in results.items()}
found["linked"] = told(linked)
print("found", json.dumps(found), flush=True)
print("failed", json.dumps({name: error(result) for name, result in failed.items()}), flush=True)
print("heard", json.dumps([failed["chain"].parent.id, failed["chord"].id]), flush=True)
"""


def test_a_canvas_that_began_before_goes_on_as_celerys(
    platform: Platform, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    platform.env["NOTES"] = str(notes)
    worker = plain(platform, database_url, redis_url, tmp_path, "flight", FLIGHT)
    caller = platform.start("caller", [sys.executable, "-W", "ignore", "-c", BEGUN], DURABLE_HERE="no")
    assert caller.wait(timeout=180) == 0, caller.output + worker.output
    said = dict(
        line.split(" ", 1) for line in caller.output.splitlines() if line.startswith(("found", "failed", "heard"))
    )
    assert json.loads(said["found"]) == {
        "chain": 6, "two": 5, "chord": 10, "chord of chains": 13, "group inside": 10, "group last": [4, 8], "ordinary": 4,
        "retry": 4, "replace": 5, "replace many": 6, "calls": 4, "linked": 5,
    }  # fmt: skip
    failed = json.loads(said["failed"])
    assert failed["chain"] == "ValueError: boom"
    assert "boom" in failed["chord"]
    heard = [f"heard {task_id}" for task_id in json.loads(said["heard"])]
    expected = sorted(["told 5", "told 5", *heard])
    wait_until(lambda: sorted(notes.read_text().splitlines()) == expected, message="links and errbacks have run, once")
    durable = Task._plain.order_by("handler").values_list("handler", flat=True)
    assert list(durable) == ["flight.add"] * 3, "what the code of a step calls, and nothing else"


ALONE = """
import json
from flight import app, told
given = {"headers": {"by": "ann"}, "time_limit": 40, "soft_time_limit": 20, "priority": 3, "retries": 2}
print("ids", json.dumps([told.apply_async(**given).id, told.delay().id, told.delay(fail=True).id]), flush=True)
"""
ASKED = """
import json, sys
from flight import app
found = [app.AsyncResult(one) for one in sys.argv[1:]]
print("found", json.dumps([one.get(timeout=60, propagate=False) for one in found], default=repr), flush=True)
print("states", json.dumps([one.state for one in found]), flush=True)
"""


def test_a_single_message_from_before_keeps_what_it_says_and_its_result(
    platform: Platform, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    platform.env["NOTES"] = str(tmp_path / "notes")
    worker = plain(platform, database_url, redis_url, tmp_path, "flight", FLIGHT)

    def said(source: str, *words: str, here: str) -> dict[str, Any]:
        process = platform.start(
            f"caller {here}", [sys.executable, "-W", "ignore", "-c", source, *words], DURABLE_HERE=here
        )
        assert process.wait(timeout=120) == 0, process.output + worker.output
        lines = [line.split(" ", 1) for line in process.output.splitlines()]
        return {line[0]: json.loads(line[1]) for line in lines if line[0] in ("ids", "found", "states")}

    ids = said(ALONE, here="no")["ids"]
    wait_until(lambda: Task._plain.count() == 3, message="all are submitted")
    found = said(ASKED, *ids, here="yes")
    assert found["states"] == ["SUCCESS", "SUCCESS", "FAILURE"]
    assert found["found"] == [[{"by": "ann"}, [40.0, 20], 2], [{}, [300.0, None], 0], "ValueError('no')"]
    limited = Task._plain.get(cap_ms=40_000)
    assert (limited.total_attempts, limited.priority) == (4, 6), "its retries are spent, its priority is kept"
