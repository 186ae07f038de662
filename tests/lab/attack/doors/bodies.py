"""Bodies: too long, too slow, too many, or such that reading them costs far more than sending them."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from tests.lab.attack.ground import Ground
from tests.lab.attack.probes import probe
from tests.lab.attack.wire import address, exchange, listen, percentile, resident, slow_clients, timed_submissions

HEAD = b"POST /api/v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\nX-Slow: "


def _api(ground: Ground) -> int:
    """The server process that holds the most: granian's worker."""
    port = f"--port\0{address(ground)[1]}\0".encode()
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*") if port in _command(path)]
    return max(pids, key=resident)


def _command(path: Path) -> bytes:
    try:
        return (path / "cmdline").read_bytes()
    except OSError:
        return b""


@probe("bodies", expected="401 at once")
def a_body_without_a_key(ground: Ground) -> str:
    """A body of 30 MB is announced without a key; one byte of it comes."""
    said = exchange(ground, "POST", "/api/v1/tasks", "Content-Length: 30000000", body=b"{")
    return "401 at once" if said.status == 401 and said.ended else str(said)


@probe("bodies", expected="413 at once")
def an_endless_body(ground: Ground) -> str:
    """A chunked body with a good key goes on for ever."""
    key = f"Authorization: Bearer {ground.setting('SLACKWATER_KEY')}"
    head = f"POST /api/v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\n{key}\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    with socket.create_connection(address(ground), timeout=20) as connection:
        connection.sendall(head.encode())
        sent = 0
        try:
            while sent < 200:
                connection.sendall(chunk)
                sent += 1
        except OSError:
            pass
        said = listen(connection)
    return "413 at once" if sent < 60 and said.status in {0, 413} and said.ended else f"{sent} MiB taken, {said}"


@probe("bodies", expected="400")
def a_chunk_that_is_none(ground: Ground) -> str:
    """The length of a chunk is no number."""
    key = f"Authorization: Bearer {ground.setting('SLACKWATER_KEY')}"
    return str(
        exchange(ground, "POST", "/api/v1/tasks", key, "Transfer-Encoding: chunked", body=b"ZZ\r\n{}\r\n").status
    )


@probe("bodies", expected="422 within a second, less than 32 MB more")
def a_bomb_of_names(ground: Ground) -> str:
    """210 kB of JSON: twenty names of ten thousand letters round five thousand numbers, and one escape."""
    text = "[" + ",".join(["1"] * 5_000) + "]"
    for n in range(20):
        text = f'{{"{"k" * 10_000}{n}": {text}}}'
    before, began = resident(pid := _api(ground)), time.monotonic()
    headers = {"Content-Type": "application/json"}
    answer = ground.ask(
        "/api/v1/tasks", "POST", body=f'{{"a": "\\u00fc", "b": {text}}}'.encode(), key=True, headers=headers
    )
    took, more = time.monotonic() - began, resident(pid) - before
    well = answer.status == 422 and took < 1 and more < 32_000_000
    return (
        "422 within a second, less than 32 MB more" if well else f"{answer.status}, {took:.1f} s, {more / 1e6:.0f} MB"
    )


@probe("bodies", expected="408", long=True)
def a_body_that_trickles(ground: Ground) -> str:
    """With a good key, a byte every second."""
    key = f"Authorization: Bearer {ground.setting('SLACKWATER_KEY')}"
    head = f"POST /api/v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\n{key}\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection(address(ground), timeout=0.5) as connection:
        connection.sendall(head.encode())
        for _ in range(90):
            said = listen(connection)
            if said.ended:
                return str(said.status)
            connection.sendall(b"x")
    return "read on"


def _beside(ground: Ground, count: int, seconds: float) -> str:
    """A good client alone and beside the slow ones; anew, at most twice, where something else kept the machine busy."""
    found = ""
    for _ in range(3):
        alone = percentile(timed_submissions(ground, seconds), 0.99)
        with slow_clients(ground, count, HEAD):
            time.sleep(min(5.0, count / 100))
            beside = percentile(timed_submissions(ground, seconds), 0.99)
        # On a loaded machine a single late answer is 10 ms: what is below that is nobody's harm.
        if beside <= 2 * max(alone, 0.01):
            return "served"
        found = f"p99 {alone * 1e3:.1f} ms alone, {beside * 1e3:.1f} ms beside"
    return found


@probe("bodies", expected="served", long=True)
def two_thousand_slow_clients(ground: Ground) -> str:
    """Two thousand connections without a key send a byte every half second: a good client's slowest stay as they were."""
    return _beside(ground, 2_000, 20.0)
