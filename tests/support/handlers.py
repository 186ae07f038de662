"""Handlers of the tests: what they do outside is written to files and tables that outlive a killed process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.db import connection

import slackwater
from slackwater import WorkKind, handler


def _die_once(folder: str, where: str) -> None:
    """Kill this process with nothing cleaned up, the first time this place is passed."""
    mark = Path(folder) / f"died-{where}"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@handler(name="test.transfer")
def transfer(order: str, cents: int, folder: str, die: str = "") -> Any:
    """Move money in the platform's own database, once an order; ``die``: where to be killed the first time."""
    with slackwater.once(f"transfer:{order}") as effect:
        if effect.first:
            with connection.cursor() as cur:
                cur.execute("INSERT INTO test_transfer (key, cents) VALUES (%s, %s)", (order, cents))
            effect.result = {"cents": cents}
            if die == "before commit":
                _die_once(folder, die)
    if die == "after commit":
        _die_once(folder, die)
    return effect.result


@handler(name="test.charge")
def charge(order: str, folder: str, die: str = "", verify: bool = True) -> Any:
    """Charge a card at a bank elsewhere, once an order: the bank is a file that only grows."""
    bank = Path(folder) / "bank"

    def happened() -> Any:
        return order if bank.exists() and order in bank.read_text().splitlines() else None

    with slackwater.once(f"charge:{order}", outside=True, verify=happened if verify else None) as effect:
        if effect.first:
            if die == "before effect":
                _die_once(folder, die)
            with bank.open("a") as out:
                out.write(f"{order}\n")
            if die == "after effect":
                _die_once(folder, die)
            effect.result = order
    if die == "after settling":
        _die_once(folder, die)
    return effect.result


@handler(name="test.split")
def split(parts: int, folder: str = "", die: bool = False) -> int:
    """Submit that many subtasks, each doubling its number."""
    items = [{"name": f"part-{n}", "handler": "test.double", "args": [n]} for n in range(parts)]
    slackwater.current().subtasks(items)
    if die:
        _die_once(folder, "split")
    return parts


@handler(name="test.double", idempotent=True)
def double(value: int) -> int:
    """Twice the number."""
    return value * 2


@handler(name="test.total", idempotent=True)
def total(values: list[Any] | None = None) -> Any:
    """The sum of a list, or else of what the parts before it returned."""
    if values is not None:
        return sum(values)
    results = slackwater.current().upstream()
    return sum(value for name, value in results.items() if name.startswith("part-"))


@handler(name="test.secret")
def secret(name: str) -> int:
    """The length of a secret; the secret itself would stand in the result."""
    return len(slackwater.current().secret(name))


@handler(name="test.spill")
def spill(name: str) -> None:
    """Fail with a secret in the message, as a library that tells of a URL would."""
    raise ValueError(f"https://user:{slackwater.current().secret(name)}@example.org does not answer")


@handler(name="test.tells")
def tells(name: str) -> None:
    """Log a secret, in a line and in a traceback."""
    found = slackwater.current().secret(name)
    try:
        int(found)
    except ValueError:
        logging.getLogger("shop").exception("tried with %s", found)


@handler(name="test.traced")
def traced() -> dict[str, Any]:
    """The trace this runs in, and the id of a task submitted from here."""
    task = slackwater.current()
    return {"headers": task.trace(), "child": task.submit("demo.echo")}


@handler(name="test.hold", idempotent=True)
def hold(mb: int, seconds: float = 1.0, how: str = "") -> int:
    """Hold so much memory for so long. ``how``: ``below``, in a process of its own; ``stubborn``, whatever comes."""
    if how == "below":
        text = f"import time; held = b'x' * ({mb} << 20); time.sleep({seconds})"
        return subprocess.run([sys.executable, "-c", text], check=True).returncode
    held, ends = b"x" * (mb << 20), time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            time.sleep(0.05)
        except BaseException:
            if how != "stubborn":
                raise
    return len(held)


@handler(name="test.ticks", idempotent=True)
def ticks(folder: str) -> None:
    """Act outside again and again until ``go`` is there: a line in a file each time."""
    while not Path(folder, "go").exists():
        with Path(folder, "ticks").open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.02)


@handler(name="test.until", idempotent=True)
def until(gate: str) -> None:
    """Hold the slot until a file is there: what a test does meanwhile takes no fixed time."""
    while not Path(gate).exists():
        time.sleep(0.02)


@handler(name="test.nap_until", idempotent=True)
async def nap_until(gate: str) -> None:
    """Wait for a file as a coroutine."""
    while not Path(gate).exists():  # noqa: ASYNC240 - a look at a file takes microseconds
        await asyncio.sleep(0.02)


@handler(name="test.doze_until", kind=WorkKind.THREAD, idempotent=True)
def doze_until(gate: str) -> None:
    """Wait for a file in a thread."""
    while not Path(gate).exists():
        time.sleep(0.02)


@handler(name="test.speaks", idempotent=True)
def speaks(gate: str) -> Iterator[int]:
    """Print, log and yield; then wait for a file, and do it again."""
    secret = slackwater.current().secret("KEY")
    for number in (1, 2):
        print("number", number, "of", 2)  # noqa: T201 - what this handler is for
        print("as", secret, file=sys.stderr)  # noqa: T201 - what this handler is for
        logging.getLogger("shop").warning("logged %s with %s", number, secret)
        yield number
        while not Path(gate).exists():
            time.sleep(0.02)
    print("no line break", end="")  # noqa: T201 - what this handler is for


@handler(name="test.says", idempotent=True)
def says(text: str, times: int = 1) -> int:
    """Write to the log."""
    for number in range(times):
        logging.getLogger("shop").warning("%s %s", text, number)
    return times
