"""Supervised processes: restarted, stopped in time, and gone when their supervisor is killed."""

import asyncio
import contextlib
import io
import signal
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest

from slackwater.local import readiness
from slackwater.local.child import Child
from slackwater.local.components import Component, Layout, components
from slackwater.local.console import Console
from slackwater.local.guardian import Guardian
from slackwater.local.lock import folder_lock
from slackwater.local.servers import ServerError
from slackwater.local.servers.folders import free_port
from slackwater.settings.local import is_supervised, read_servers, write_private
from tests.support.processes import ManagedProcess, running
from tests.support.waiting import wait_until

# A child that ignores TERM, with a grandchild in a session of its own and without any environment.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True, env={})
print("pids", sleeper.pid, flush=True)
time.sleep(600)
"""
SUPERVISOR = """
import asyncio, os, sys
from pathlib import Path
from slackwater.local.child import Child
from slackwater.local.components import Component
from slackwater.local.console import Console
from slackwater.local.guardian import Guardian

async def main():
    guardian = Guardian("SLACKWATER_SUPERVISOR=of-this-test")
    guardian.start()
    part = Component(name="stubborn", command=(sys.executable, "-c", sys.argv[2]))
    await Child(part, env=os.environ, console=Console(Path(sys.argv[1])), guardian=guardian).keep()

asyncio.run(main())
"""


def supervised(script: str, folder: Path, *, stop_timeout: float = 10.0) -> tuple[Child, io.StringIO]:
    said = io.StringIO()
    part = Component(name="part", command=(sys.executable, "-c", script), stop_timeout=stop_timeout)
    return Child(part, env={}, console=Console(folder, said), guardian=Guardian("unused")), said


def test_nothing_survives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with running([sys.executable, "-c", SUPERVISOR, str(tmp_path), STUBBORN]) as supervisor:
        said = supervisor.wait_for("pids")
        stubborn = [process for process in supervisor.family()[1:] if "600" in " ".join(process.cmdline())]
        sleeper = psutil.Process(int(said.split("pids")[1].split()[0]))
        assert sleeper in stubborn
        assert len(stubborn) == 2
        supervisor.send(signal.SIGKILL)
        supervisor.wait()
        _, alive = psutil.wait_procs(stubborn, timeout=15)
        assert alive == []


def test_what_ends_is_started_again_with_growing_pauses(tmp_path: Path) -> None:
    child, said = supervised("print('hello'); raise SystemExit(3)", tmp_path)

    async def scenario() -> None:
        keeper = asyncio.create_task(child.keep())
        async with asyncio.timeout(30):
            while said.getvalue().count("hello") < 3:
                await asyncio.sleep(0.02)
        await child.stop()
        await keeper

    asyncio.run(scenario())
    assert "part ended (exit code 3); it is started again in 0.5 s" in said.getvalue()
    assert "started again in 1 s" in said.getvalue()


def test_what_does_not_stop_in_time_is_killed(tmp_path: Path) -> None:
    child, said = supervised(STUBBORN, tmp_path, stop_timeout=0.3)

    async def scenario() -> float:
        keeper = asyncio.create_task(child.keep())
        async with asyncio.timeout(30):
            while "pids" not in said.getvalue():
                await asyncio.sleep(0.02)
        started = time.monotonic()
        await child.stop()
        await keeper
        return time.monotonic() - started

    assert asyncio.run(scenario()) < 10
    assert "did not stop within 0.3 s" in said.getvalue()
    psutil.Process(int(said.getvalue().split("pids")[1].split()[0])).kill()


def test_very_long_lines_do_not_stop_the_log(tmp_path: Path) -> None:
    child, said = supervised("print('x' * 3_000_000); print('after')", tmp_path)
    asyncio.run(child.run_once())
    assert "after" in said.getvalue()
    assert "after" in (tmp_path / "part.log").read_text()


def test_a_log_file_that_is_full_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater.local.console.MAX_FILE_BYTES", 100)
    console = Console(tmp_path, io.StringIO())
    for number in range(20):
        console.line("part", f"line {number}")
    files = list(tmp_path.iterdir())
    assert len(files) <= 2
    assert all(path.stat().st_size < 300 for path in files)
    assert any("line 19" in path.read_text() for path in files)


def test_one_supervisor_for_each_folder(tmp_path: Path) -> None:
    write_private(tmp_path / "servers.json", '{"SLACKWATER_REDIS_URL": "redis://x"}')
    assert read_servers(tmp_path) == {}
    with folder_lock(tmp_path):
        assert is_supervised(tmp_path)
        assert read_servers(tmp_path) == {"SLACKWATER_REDIS_URL": "redis://x"}
        with pytest.raises(ServerError, match="already runs"), folder_lock(tmp_path, patience=0.1):
            pass
    wait_until(lambda: not is_supervised(tmp_path))


def test_the_number_of_workers_is_data() -> None:
    layout = Layout(host="127.0.0.1", port=1, flower_port=2, workers=3, concurrency=5)
    parts = components(layout)
    workers = [part for part in parts if part.name.startswith("worker-")]
    assert [part.name for part in workers] == ["worker-1", "worker-2", "worker-3"]
    assert all(part.stop_phase < min(p.stop_phase for p in parts if p not in workers) for part in workers)
    assert all("5" in part.command for part in workers)


@contextlib.contextmanager
def saying(answer: bytes) -> Iterator[int]:
    """A server that answers each request with this; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/readyz"
            status, _, body = answer.partition(b" ")
            self.send_response(int(status))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("answer", "lacking"),
    [
        (b'200 {"checks": {"workers": {"default": 1}}}', ""),
        (b'200 {"checks": {"workers": {}}}', "no worker has come"),
        (b'200 {"checks": {"workers": {}, "starting": {"default": 1}}}', "a worker is starting"),
        (b'503 {"checks": {"workers": {"default": 1}}}', "the API has not answered"),
        (b"200 no JSON", "the API has not answered"),
    ],
)
def test_a_platform_is_up_when_a_worker_is_there(answer: bytes, lacking: str) -> None:
    with saying(answer) as port:
        patience = 2.0 if lacking else 30.0
        assert asyncio.run(readiness.awaited("127.0.0.1", port, patience=patience)) == lacking


def test_a_port_where_nobody_listens_is_no_answer() -> None:
    found = asyncio.run(readiness.awaited("127.0.0.1", free_port(), patience=0.3))
    assert found == "the API has not answered"


def test_a_worker_of_the_api_ends_with_its_killed_server_and_leaves_the_port(tmp_path: Path) -> None:
    port = free_port()
    server = [sys.executable, "-m", "granian", "--interface", "asginl", "--port", str(port), "--no-ws"]
    env = {
        "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded",
        "PYTHONPATH": "platform:apps:.",
        "SLACKWATER_VAR": str(tmp_path),
    }

    def start() -> contextlib.AbstractContextManager[ManagedProcess]:
        return running([*server, "slackwater.asgi:application"], env=env, name="api")

    def answers() -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    with start() as api:
        wait_until(answers, timeout=60, message="the API answers")
        family = api.family()
        assert len(family) > 1, "the server has no worker of its own"
        api.send(signal.SIGKILL)
        _, alive = psutil.wait_procs(family, timeout=30)
        try:
            assert alive == [], "its worker goes on without it"
        finally:
            for process in alive:
                process.kill()
    with start():
        wait_until(answers, timeout=60, message="the next API answers on the same port")
