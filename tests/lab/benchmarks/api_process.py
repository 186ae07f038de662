"""The API's server, as `make up` runs it, in a process of its own."""

from __future__ import annotations

import http.client
import subprocess
import time
from collections.abc import Mapping

from slackwater.local.components import Layout, components
from slackwater.local.process import Output, start

START_S = 60.0


def start_api(
    port: int, *, env: Mapping[str, str], stdout: Output, stderr: Output | None = None
) -> subprocess.Popen[bytes]:
    """Start a server on that port of this machine."""
    layout = Layout(host="127.0.0.1", port=port, flower_port=0, workers=0, concurrency=1)
    api = next(one for one in components(layout) if one.name == "api")
    return start(api.command, env={**env, **api.env}, stdout=stdout, stderr=stderr)


def wait_listening(process: subprocess.Popen[bytes], port: int) -> None:
    """Return once it answers; ``RuntimeError`` when it ends or the time is up."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            connection.close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the API did not start") from None
            time.sleep(0.05)
