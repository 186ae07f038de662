"""What a platform costs that has nothing to do: `make up` whole, then the parts of a production cell without servers.

Processor time is by the processes' own clocks, memory is what is theirs alone. What ended meanwhile is counted by
its parent, as are PostgreSQL's workers.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from slackwater.local.process import start, stop
from slackwater.local.servers.folders import free_port
from slackwater.settings.place import ROOT
from slackwater_conf import conf
from tests.lab.benchmarks import account, ground
from tests.lab.benchmarks.api_process import start_api, wait_listening
from tests.lab.benchmarks.live.parts import START_S, STOP_S, Parts, tell, wait
from tests.lab.benchmarks.peer import report

KNOWN = (
    "run_dispatcher", "run_upkeep", "granian", "flower", "worker.agent", "fork_server", "guardian", "valkey",
    "postgres", "local.program", " beat", " worker",
)  # fmt: skip
SHOWN = {"granian": "API", "valkey": "Redis", "local.program": "supervisor", "worker.agent": "agent"}
ARENAS = {"MALLOC_ARENA_MAX": "2"}
"""As in the image."""


def run(seconds: int, settle: int, children: int) -> None:
    """Rest ``settle`` seconds, then look for ``seconds``; a worker has so many ``children``."""
    ground.prepare()
    with _up(children) as root:
        _measure("make up", {"": root}, seconds, settle)
    parts = Parts(workers=1, children=children, env=ARENAS)
    with parts.running(), _api() as api:
        _measure("production cell", {**parts.pids, "api": api}, seconds, settle)


@contextlib.contextmanager
def _up(children: int) -> Iterator[int]:
    """`make up` in a folder of its own, as somebody starts it who has set nothing."""
    var = Path(conf().var) / "up"
    log = var.with_suffix(".log")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLACKWATER_")}
    env = {**kept, "SLACKWATER_VAR": str(var), "SLACKWATER_PORT": "0"}
    with log.open("ab") as file:
        command = [sys.executable, str(ROOT / "manage.py"), "up", "--concurrency", str(children)]
        process = start(command, env=env, stdout=file, stderr=file)
    try:
        if not wait(lambda: "Slackwater is up" in log.read_text() or process.poll() is not None, START_S):
            raise RuntimeError(f"it did not start; see {log}")
        yield process.pid
    finally:
        stop([process], timeout=STOP_S)


@contextlib.contextmanager
def _api() -> Iterator[int]:
    port = free_port()
    with (Path(conf().var) / "api.log").open("ab") as log:
        process = start_api(port, env={**os.environ, **ARENAS}, stdout=log, stderr=log)
    try:
        wait_listening(process, port)
        yield process.pid
    finally:
        stop([process], timeout=STOP_S)


def _measure(what: str, roots: Mapping[str, int], seconds: int, settle: int) -> None:
    tell(f"{what} settles", 0, settle)
    time.sleep(settle)
    tell(what, 0, seconds)
    before, ended, began = _clocks(roots), _ended(roots), time.monotonic()
    time.sleep(seconds)
    after, took = _clocks(roots), time.monotonic() - began
    rows: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for pid, used in after.items():
        row = rows[_name(pid)]
        row[0] += 1
        row[1] += (used - before.get(pid, 0.0)) / took * 100
        row[2] += account.private_mb(pid)
    rows["what ended meanwhile"][1] = max(0.0, _ended(roots) - ended) / took * 100
    rows["all"] = [sum(row[at] for row in rows.values()) for at in range(3)]
    for name, (count, percent, megabytes) in sorted(rows.items(), key=lambda item: item[1][1]):
        report(
            "RESULT", part=what, process=name, count=int(count), cpu_percent=round(percent, 2),
            private_mb=round(megabytes, 1),
        )  # fmt: skip


def _clocks(roots: Mapping[str, int]) -> dict[int, float]:
    """Processor seconds of each process."""
    found = {}
    for pid in account.members(roots):
        with contextlib.suppress(OSError):
            found[pid] = time.clock_gettime(account.cpu_clock(pid))
    return found


def _ended(roots: Mapping[str, int]) -> float:
    return sum(account.reaped_s(pid) for pid in account.members(roots))


def _name(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "what ended meanwhile"
    found = next((known for known in KNOWN if known in line), "others").strip()
    if found == "worker" and _name(account.parent_of(pid)) == found:
        return "worker's children"
    return SHOWN.get(found, found.removeprefix("run_").replace("_", " ").replace("postgres", "PostgreSQL"))
