"""An agent that is killed leaves nothing: its keepers end, with what they run and the groups they made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import uuid

import psutil
import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.sandbox.base import Level
from scheduler_ext.sandbox.pool import SlotPool
from tests.support.waiting import wait_until

AGENT = """
import asyncio, sys
from pathlib import Path
from scheduler_ext.conf import SchedulerConf
from scheduler_ext.sandbox.base import Limits, Order
from scheduler_ext.sandbox.pool import SlotPool
level, root, script = sys.argv[1:]
pool = SlotPool(SchedulerConf(sandbox=level))
pool.probe()
limits = Limits(cpu_milli=1000, memory_mb=128, disk_mb=16, cap_ms=60000)
order = Order(script=script.encode(), inputs=b"{}", env={"PATH": "/usr/bin:/bin"}, limits=limits)
asyncio.run(pool.take(Path(root), trusted=True).run(order, 1, 2))
"""


def running(mark: str) -> list[psutil.Process]:
    """The script's own processes: whoever carries the mark but the agent and its keeper."""
    found = []
    for process in psutil.process_iter(["cmdline", "name"]):
        line = process.info["cmdline"] or []
        if process.info["name"] == "sleep" and mark in line:
            found.append(process)
    return found


@pytest.mark.parametrize("level", Level)
def test_nothing_outlives_a_killed_agent(level: Level) -> None:
    if SlotPool(SchedulerConf(sandbox=level)).level != level:
        pytest.skip(f"this machine offers no {level}")
    mark = str(4_000_000 + uuid.uuid4().int % 1_000_000)
    script = f"trap '' TERM\nsetsid sleep {mark} &\nsleep {mark}\n"
    with tempfile.TemporaryDirectory(prefix="slackwater-test-") as folder:
        agent = subprocess.Popen([sys.executable, "-W", "ignore", "-c", AGENT, level, folder, script])
        try:
            wait_until(lambda: len(running(mark)) == 2, message="the script runs with its daemon")
            keepers = [p for p in psutil.Process(agent.pid).children() if "keeper" in " ".join(p.cmdline())]
            assert len(keepers) == 1
        finally:
            agent.send_signal(signal.SIGKILL)
            agent.wait()
        wait_until(lambda: running(mark) == [], message="nothing of the script is left")
        wait_until(lambda: not keepers[0].is_running(), message="the keeper has ended")
        wait_until(lambda: _groups(keepers[0].pid) == [], message="nor of its control groups")


def _groups(pid: int) -> list[str]:
    """Its keeper's; those of others may vanish while this looks."""
    return [path for path, _, _ in os.walk("/sys/fs/cgroup") if path.endswith(f"/slackwater-{pid}")]
