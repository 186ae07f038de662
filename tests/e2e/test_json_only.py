"""Who can write to the broker cannot run code on a worker: messages are JSON, and nothing else is taken apart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from celery import current_app

from scheduler_ext.core.states import TaskState
from scheduler_ext.dispatch.keys import SLICE_TASK
from slackwater_resources.models import Node
from tests.support.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]


class Bomb:
    """Taking it apart makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


def test_a_pickled_message_is_refused_unopened_and_the_worker_goes_on(platform: Platform, tmp_path: Path) -> None:
    platform.dispatcher()
    worker = platform.worker(concurrency=1)
    queue = f"slackwater.node.{Node.objects.get().pk}"
    headers = {"task": SLICE_TASK, "id": "bomb"}
    with current_app.connection_for_write(platform.env["SLACKWATER_REDIS_URL"]) as connection:
        connection.Producer().publish(
            [[Bomb(tmp_path / "bang")], {}, {}],
            exchange="",
            routing_key=queue,
            headers=headers,
            serializer="pickle",
        )
        worker.wait_for("without this platform's seal: 'slackwater.slice'")
    assert not (tmp_path / "bang").exists()
    assert platform.wait(platform.submit("demo.echo", 1)).state == TaskState.SUCCEEDED
