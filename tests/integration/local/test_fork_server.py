"""Components forked from one process: children of who asked, like any other, and no worse off when the server is gone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from slackwater.local.fork_server import Forked, ForkServer, _is_possible
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(not _is_possible(), reason="no siblings can be made here")

SERVER = "from slackwater.local.fork_server import main; main(lambda: None)"
CHILD = """
import json, os, random, sys, threading, time, uuid
told = {"parent": os.getppid(), "session": os.getsid(0), "argv": sys.argv[1:], "env": os.environ.get("OF_ONE"),
        "chance": random.random(), "threads": threading.active_count(), "tid": threading.get_native_id()}
print(json.dumps(told), flush=True)
if sys.argv[1] == "stay":
    time.sleep(600)
sys.exit(7)
"""


async def made(server: ForkServer, folder: Path, *words: str) -> tuple[Forked, dict[str, Any]]:
    """A child and what it tells of itself."""
    script, said = folder / "child.py", folder / f"{words[0]}.txt"
    script.write_text(CHILD)
    with said.open("wb") as log:
        child = await server.fork([sys.executable, str(script), *words], env={"OF_ONE": "x"}, output=log.fileno())
    assert child is not None
    await asyncio.to_thread(wait_until, lambda: said.read_text().endswith("\n"), message="the child speaks")
    return child, json.loads(said.read_text())


def test_what_is_forked_is_our_own_child_and_outlives_the_server(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = ForkServer(os.environ, ["-c", SERVER])
        child, told = await made(server, tmp_path, "stay")
        assert (told["parent"], told["session"], told["tid"]) == (os.getpid(), child.pid, child.pid)
        assert (told["argv"], told["env"], told["threads"]) == (["stay"], "x", 1)
        assert psutil.Process(child.pid).cmdline()[:2] == [sys.executable, str(tmp_path / "child.py")]

        assert server._process is not None
        server._process.send_signal(signal.SIGKILL)
        server._process.wait()
        other, also = await made(server, tmp_path, "go")  # by a new server
        assert await other.wait() == 7
        assert also["chance"] != told["chance"]

        assert psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE
        child.terminate()
        assert await child.wait() == -signal.SIGTERM
        child.terminate()
        server.end()

    asyncio.run(scenario())


def test_where_nothing_can_be_forked_the_caller_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = ForkServer(os.environ, ["-c", "raise SystemExit(1)"])
        for _ in range(2):
            assert await server.fork([sys.executable, "-c", ""], env={}, output=2) is None
        assert server._process is None

    asyncio.run(scenario())
