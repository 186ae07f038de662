"""What went wrong is told, by webhook and on the live stream, by the processes that do it in production."""

from __future__ import annotations

import contextlib
import http.client
import socket
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from scheduler_ext.core.states import TaskState
from slackwater_monitoring.notify import subscriptions
from slackwater_resources.models import Node, Tier
from slackwater_tasks.submission.service import store_script
from slackwater_tenants.services import create_api_key
from tests.support.platform import Platform
from tests.support.processes import manage
from tests.support.receiver import Receiver, receiving
from tests.support.streams import events_in
from tests.support.submitters import free_port, is_up
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]
HUNGRY = b"#!/usr/bin/python3\nx = []\nwhile True: x.append(bytearray(b'x' * (16 << 20)))\n"
WRITES = b'i=0\nwhile :; do i=$((i + 1)); head -c 5000000 /dev/zero >"$HOME/full.$i" || exit 1; done\n'
FORKS = b"""#!/usr/bin/python3
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    except OSError:
        time.sleep(0.01)
"""
TALKS = b'exec yes "a line that fills your disk with logs"\n'


class Follower:
    """A client of a live stream, in a thread."""

    def __init__(self, port: int, path: str, key: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=240)
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {key}"})
        self._response = self._connection.getresponse()
        assert self._response.status == 200
        self._text = b""
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            while part := self._response.read1(65536):
                self._text += part

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Those of one kind that have come whole."""
        return [found for found in events_in(self._text.rpartition(b"\n\n")[0]) if found["kind"] == kind]

    def close(self) -> None:
        """Leave."""
        sock = self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._connection.close()


@contextlib.contextmanager
def told(platform: Platform, settings: Any) -> Iterator[tuple[Receiver, Follower]]:
    """Upkeep, an API, a webhook for all events, and a follower of the tenant's stream."""
    settings.SLACKWATER = {**settings.SLACKWATER, "SECRETS_KEYS": [platform.env["SLACKWATER_SECRET_KEY"]]}
    settings.SLACKWATER = {**settings.SLACKWATER, "WEBHOOK_PRIVATE": True, "WEBHOOK_PORTS": (0,)}
    port = free_port()
    granian = [sys.executable, "-m", "granian", "--interface", "asginl", "--port", str(port), "--no-ws"]
    platform.start("upkeep", manage("run_upkeep"), SLACKWATER_WEBHOOK_PRIVATE="true", SLACKWATER_WEBHOOK_PORTS="0")
    platform.start("api", [*granian, "slackwater.asgi:application"])
    key = create_api_key(platform.tenant, "follower", ("read",))[1]
    with receiving() as receiver:
        events = list(subscriptions.EVENTS)
        subscriptions.create(platform.tenant, {"url": receiver.url, "events": events})
        wait_until(lambda: is_up(port), timeout=60, message="the API answers")
        follower = Follower(port, "/api/v1/events", key)
        try:
            wait_until(lambda: follower.events("open"), message="the stream has begun")
            yield receiver, follower
        finally:
            follower.close()


def of(receiver: Receiver, task_id: UUID) -> dict[str, dict[str, Any]]:
    """What the webhook got of a task, by event."""
    found = [one.json for one in list(receiver.got)]
    return {one["type"]: one for one in found if one["data"]["task_id"] == str(task_id)}


def test_what_was_exceeded_is_told(platform: Platform, settings: Any) -> None:
    platform.set(script_output_bytes=1 << 20)
    platform.tenant.trusted = False
    platform.tenant.save(update_fields=["trusted"])
    Tier.objects.create(slug="tiny", tenant=platform.tenant, cpu_milli=500, memory_mb=96, disk_mb=20)
    with told(platform, settings) as (receiver, follower):
        platform.dispatcher()
        platform.worker()
        if Node.objects.get().sandbox == "process":
            pytest.skip("this machine offers no sandbox")
        tasks = {
            what: platform.submit(
                script=store_script(platform.tenant, f"{what}.sh", text).sha256, tier="tiny",
                total_attempts=2 if what == "output" else 1,
            )
            for what, text in (("memory", HUNGRY), ("disk", WRITES), ("processes", FORKS), ("output", TALKS))
        }  # fmt: skip
        capped = platform.submit("demo.sleep", kwargs={"seconds": 30}, execution_cap_s=0.3, total_attempts=1)
        for task_id in (*tasks.values(), capped):
            assert platform.wait(task_id, timeout=60).state == TaskState.FAILED
        wanted = {"task.started", "task.resource_exceeded", "task.failed", "task.dead_lettered"}
        for what, task_id in tasks.items():
            all_of_it = wanted | ({"task.retrying"} if what == "output" else set())
            wait_until(lambda t=task_id, w=all_of_it: of(receiver, t).keys() >= w, message=f"{what} is told")  # type: ignore[misc]
            assert of(receiver, task_id).keys() == all_of_it
            data = of(receiver, task_id)["task.resource_exceeded"]["data"]
            assert (data["outcome"], data["script"]) == (
                "resource_exceeded",
                platform.row(task_id).script_sha256,
            )
            assert f"{what}: it" in data["reason"], data["reason"]
        wait_until(lambda: "task.cap_exceeded" in of(receiver, capped), message="the cap is told")
        data = of(receiver, capped)["task.cap_exceeded"]["data"]
        assert (data["outcome"], data["state"], data["attempt"]) == ("cap_exceeded", "failed", 1)

        def seen(task_id: UUID) -> list[tuple[str, str | None]]:
            rows = [row for row in follower.events("task") if row["task_id"] == str(task_id)]
            return [(row["state"], row.get("outcome")) for row in rows if row["state"] != "running"]

        over = "resource_exceeded"
        wait_until(lambda: seen(capped) == [("failed", "cap_exceeded")], message="the stream tells the cap")
        once = [("failed", over)]
        wait_until(lambda: seen(tasks["memory"]) == once, message="the stream tells of the memory")
        wait_until(lambda: seen(tasks["disk"]) == once, message="the stream tells of the disk")
        wait_until(lambda: seen(tasks["processes"]) == once, message="the stream tells of the processes")
        twice = [("scheduled", over), ("failed", over)]
        wait_until(lambda: seen(tasks["output"]) == twice, message="the stream tells both attempts")


def test_what_cannot_run_and_what_waits_too_long_is_told(platform: Platform, settings: Any, tmp_path: Path) -> None:
    platform.set(impossible_after_s=2.0)
    Tier.objects.create(slug="huge", tenant=platform.tenant, cpu_milli=10**9, memory_mb=1)
    with told(platform, settings) as (receiver, follower):
        platform.dispatcher()
        platform.worker(concurrency=1)
        go = tmp_path / "go"
        long = platform.submit("test.until", str(go))
        platform.wait(long, TaskState.RUNNING)
        huge = platform.submit("demo.echo", 1, tier="huge")
        late = platform.submit("demo.echo", 2, delay_tolerance_s=0.5)
        gone = platform.submit("demo.echo", 3, delay_tolerance_s=0.5, on_late="give_up")
        assert platform.wait(huge).state == TaskState.FAILED
        assert platform.wait(gone).state == TaskState.EXPIRED
        wait_until(lambda: "task.late" in of(receiver, late), message="it is told to be late")
        go.touch()
        assert platform.wait(late).state == TaskState.SUCCEEDED
        expected = {
            huge: {"task.impossible", "task.failed", "task.dead_lettered"},
            late: {"task.late", "task.started", "task.succeeded"},
            gone: {"task.expired"},
        }
        for task_id, events in expected.items():
            wait_until(lambda t=task_id, e=events: of(receiver, t).keys() >= e, message=f"{events} are told")  # type: ignore[misc]
            assert of(receiver, task_id).keys() == events
        impossible = of(receiver, huge)["task.impossible"]["data"]
        assert impossible["reason"] == "its tier is larger than every registered node"
        assert (impossible["state"], impossible["attempt"]) == ("blocked", 0)
        assert "try_again_at" not in impossible
        for task_id, name in ((late, "task.late"), (gone, "task.expired")):
            one = of(receiver, task_id)[name]
            again = datetime.fromisoformat(one["data"]["try_again_at"])
            assert 5 < (again - datetime.fromisoformat(one["timestamp"])).total_seconds() < 90_000
        notices = {huge: "task.impossible", late: "task.late", gone: "task.expired"}

        def noticed() -> dict[str, Any]:
            return {row["data"]["task_id"]: row["type"] for row in follower.events("notice")}

        wait_until(lambda: len(noticed()) == len(notices), message="the stream tells them too")
        assert noticed() == {str(task_id): event for task_id, event in notices.items()}
        rows = {row["type"]: row for row in follower.events("notice")}
        for task_id, event in notices.items():
            same = {name: rows[event][name] for name in ("type", "timestamp", "data")}
            webhook = of(receiver, task_id)[event]
            assert same == webhook
