"""The walk of a submission: which rooms one request enters until its task is stored."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from slackwater_api.server.application import AsgiApplication
from tests.support.api import HANDLER, client_of, furnish
from tests.support.front import Visit, drive

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = tuple(f"{ROOT / folder}/" for folder in ("apps", "scheduler_ext", "platform"))
MAX_ROOMS = 42
"""The first submission of a tenant, in a process that has had one of another. Lower it; never raise it."""
BODY = b'{"handler": "%s"}' % HANDLER.encode()


class Walk:
    """Notes the file of every function of the product that is called, in the order of their first call."""

    def __init__(self) -> None:
        self.rooms: list[str] = []

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """A profiler: called by the interpreter for each call."""
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PRODUCT) and name not in self.rooms:
            self.rooms.append(name)


def test_a_submission_enters_no_more_rooms_than_it_does_today() -> None:
    furnish()
    other, client = client_of("other"), client_of("acme")
    walk = Walk()

    async def story(front: AsgiApplication) -> None:
        visit = await Visit(front, other.text, "POST", "/api/v1/tasks", BODY).run()
        assert visit.status == 201, visit.body
        walk.rooms.clear()  # what is read once in the life of a process, be this test its first or not
        sys.setprofile(walk.note)
        try:
            visit = await Visit(front, client.text, "POST", "/api/v1/tasks", BODY).run()
        finally:
            sys.setprofile(None)
        assert visit.status == 201, visit.body

    threading.setprofile(walk.note)  # the front's threads begin with the first request
    try:
        drive(story)
    finally:
        threading.setprofile(None)
    rooms = [str(Path(name).relative_to(ROOT)) for name in walk.rooms]
    assert len(rooms) <= MAX_ROOMS, "\n".join(rooms)
