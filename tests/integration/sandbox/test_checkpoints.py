"""``CHECKPOINT_DIR`` at every level of containment: what a script publishes is kept, and found by its next turn."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Finished
from scheduler_ext.sandbox.base import Saves
from tests.support.bench import Bench

pytestmark = pytest.mark.usefixtures("folder")

PUBLISH = 'printf %s "$1" >"$CHECKPOINT_DIR/.new"; mv "$CHECKPOINT_DIR/.new" "$CHECKPOINT_DIR/at"'
WAIT = "while :; do sleep 0.05; done"
STEP = f"""#!/bin/sh
set -- $(($(cat "$CHECKPOINT_DIR/at" 2>/dev/null || echo 0) + 1))
{PUBLISH}
"""


class Kept:
    """What was kept of a task's turns."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []
        self.refused: list[str] = []

    def saves(self, **changes: Any) -> Saves:
        async def keep(content: bytes) -> None:
            self.contents.append(content)

        async def refuse(reason: str) -> None:
            self.refused.append(reason)

        last = self.contents[-1] if self.contents else None
        return Saves(keep=keep, refuse=refuse, content=last, **{"every_s": 0.05, **changes})


def turn(bench: Bench, kept: Kept, script: str, ask: bool = False, grace_s: float = 20.0, **changes: Any) -> Finished:
    run = bench.prepare(script, checkpoints=True)
    run.conf = dataclasses.replace(run.conf, yield_grace_s=grace_s)
    run.saves = kept.saves(**changes)

    async def going() -> Finished:
        job = asyncio.ensure_future(run.run())
        while ask and not kept.contents and not job.done():
            await asyncio.sleep(0.02)
        if ask:
            run.stop(Outcome.YIELDED)
        return await job

    return asyncio.run(going())


def test_each_turn_goes_on_from_the_one_before(bench: Bench) -> None:
    kept = Kept()
    for number in (1, 2, 3):
        finished = turn(bench, kept, STEP + "exit 75")
        assert finished.outcome is Outcome.YIELDED, finished.error
        assert kept.contents[-1].endswith(f"\n{number}".encode())
    finished = turn(bench, kept, STEP + 'cat "$CHECKPOINT_DIR/at" >"$SLACKWATER_RESULT"')
    assert (finished.outcome, finished.result) == (Outcome.SUCCEEDED, "4")


def test_what_is_published_while_it_runs_is_kept_though_it_is_killed(bench: Bench) -> None:
    kept = Kept()
    finished = turn(bench, kept, f"#!/bin/sh\ntrap '' TERM\nset -- 7\n{PUBLISH}\n{WAIT}", ask=True, grace_s=2.0)
    assert finished.outcome is Outcome.YIELDED, finished.error
    assert finished.error == "it did not yield in time: it goes on from its last checkpoint"
    assert kept.contents[-1].endswith(b"\n7")


def test_asked_to_yield_it_saves_and_goes(bench: Bench) -> None:
    kept = Kept()
    script = f"#!/bin/sh\nset -- 1\n{PUBLISH}\ntrap 'set -- 2; {PUBLISH}; exit 75' TERM\n{WAIT}"
    finished = turn(bench, kept, script, ask=True)
    assert (finished.outcome, finished.error) == (Outcome.YIELDED, None)
    assert kept.contents[-1].endswith(b"\n2")


def test_one_that_comes_to_its_end_though_asked_has_ended(bench: Bench) -> None:
    kept = Kept()
    end = 'echo 9 >"$SLACKWATER_RESULT"; exit 0'
    script = f"#!/bin/sh\ntrap '{end}' TERM\nset -- 1\n{PUBLISH}\n{WAIT}"
    finished = turn(bench, kept, script, ask=True)
    assert (finished.outcome, finished.result) == (Outcome.SUCCEEDED, "9")


def test_too_much_is_told_and_the_script_goes_on(bench: Bench) -> None:
    kept = Kept()
    publish = 'head -c 2000 /dev/zero >"$CHECKPOINT_DIR/.new"; mv "$CHECKPOINT_DIR/.new" "$CHECKPOINT_DIR/big"'
    script = f'{publish}; sleep 1; echo 1 >"$SLACKWATER_RESULT"'
    finished = turn(bench, kept, script, most_bytes=1_000)
    assert finished.outcome is Outcome.SUCCEEDED, finished.error
    assert kept.contents == []
    assert kept.refused == ["it has 2000 bytes, the plan allows 1000"]


def test_nothing_of_the_node_is_taken(bench: Bench) -> None:
    kept = Kept()
    script = 'cd "$CHECKPOINT_DIR"; ln -s /etc/passwd link; ln -s /etc etc; echo mine >good; exit 75'
    turn(bench, kept, script)
    assert b"root:" not in kept.contents[-1]
    assert kept.contents[-1].endswith(b"mine\n")


def test_without_the_declaration_there_is_no_folder(bench: Bench) -> None:
    finished, _ = bench.run('test -z "$CHECKPOINT_DIR" && exit 75')
    assert (finished.outcome, finished.exit_code) == (Outcome.FAILED, 75)
