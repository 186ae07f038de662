"""Runs side by side: each peer in a process and an environment of its own, run after run, all on the same servers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slackwater.local.process import start, stop
from slackwater.local.servers import ServerError
from tests.lab.benchmarks.channel import CHANNEL_FILE
from tests.lab.benchmarks.peer import Config, Tell
from tests.lab.benchmarks.servers import Place
from tests.lab.benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "tests" / "lab" / "benchmarks" / "peers"
OWN = "slackwater"
REDIS = "redis==8.1.0"
PSYCOPG = "psycopg[binary,pool]==3.3.9"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another task queue: its script below ``tests/lab/benchmarks/peers``, and what its environment holds."""

    script: str
    packages: tuple[str, ...]
    variants: Mapping[str, str]


RIVALS: Mapping[str, Rival] = {
    "celery": Rival(
        script="celery_peer.py",
        packages=("celery[redis]==5.7.0", PSYCOPG),
        variants={"default": "prefork, results ignored; not durable"},
    ),
    "celery_django": Rival(
        script="celery_django_peer.py",
        packages=("celery[redis]==5.7.0", "django-celery-results==2.6.0", "Django==5.2.19", PSYCOPG),
        variants={
            "default": "results and starts recorded by django-celery-results",
            "keepconn": "the same, with database connections kept open",
        },
    ),
    "procrastinate": Rival(
        script="procrastinate_peer.py",
        packages=("procrastinate==3.10.0", PSYCOPG, REDIS),
        variants={"default": "submitted by the thousand (batch_defer)", "single": "submitted one by one"},
    ),
    "pgqueuer": Rival(
        script="pgqueuer_peer.py",
        packages=("pgqueuer==1.6.0", "asyncpg==0.32.0", PSYCOPG, REDIS),
        variants={"default": "two processes, batches of 10", "b100": "two processes, batches of 100"},
    ),
}
OWN_VARIANTS = {
    "default": "dispatcher, upkeep, one worker with two processes",
    "coroutine": "the same, the handler is an async def",
    "events": "the same, with a listener to task events",
    "says": "the same, each task prints a line",
    "deaf": "the same, nothing of what handlers print is caught",
}
"""Told what is done: phase, done, of."""


def parse(text: str) -> tuple[str, str]:
    """``peer`` or ``peer:variant``; ServerError names what exists."""
    name, _, variant = text.partition(":")
    variant = variant or "default"
    known = {OWN: OWN_VARIANTS, **{rival: spec.variants for rival, spec in RIVALS.items()}}
    if name not in known:
        raise ServerError(f"there is no peer {name!r}; known are {', '.join(known)}")
    if variant not in known[name]:
        raise ServerError(f"{name} has no variant {variant!r}; known are {', '.join(known[name])}")
    return name, variant


def interpreter(name: str, cache: Path) -> str:
    """The Python of a peer's environment, made from the package index on first use."""
    if name == OWN:
        return sys.executable
    packages = RIVALS[name].packages
    digest = hashlib.sha256(" ".join((sys.version, *packages)).encode()).hexdigest()[:10]
    venv = cache / f"{name}-{digest}"
    python = venv / "bin" / "python"
    if not (venv / ".complete").exists():
        uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
        if not Path(uv).exists():
            raise ServerError("uv is missing, which makes the peers' environments; run `make env`")
        env = {"UV_SYSTEM_CERTS": "true", **os.environ, "VIRTUAL_ENV": str(venv)}
        for command in (
            [uv, "venv", "-q", "--clear", "--python", sys.executable, str(venv)],
            [uv, "pip", "install", "-q", "--no-progress", *packages],
        ):
            made = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            if made.returncode:
                raise ServerError(f"the environment of {name} could not be made:\n{made.stderr[-2000:]}")
        (venv / ".complete").touch()
    return str(python)


def run_one(place: Place, python: str, config: Config, tell: Tell) -> dict[str, Any]:
    """One run of one peer in a process of its own; what went wrong stands in the result."""
    env = place.environment()
    if config.peer == OWN:
        command = [python, "-m", "tests.lab.benchmarks", "peer", config.to_json()]
    else:
        command = [python, str(SCRIPTS / RIVALS[config.peer].script)]
        del env["DJANGO_SETTINGS_MODULE"]
        env |= {
            "BENCH_CONFIG": config.to_json(),
            "PYTHONPATH": os.pathsep.join([str(SCRIPTS), str(ROOT)]),  # nothing of the product
        }
    result: dict[str, Any] | None = None
    with contextlib.suppress(ServerError):
        for said in reports(config.peer, command, env, Path(config.log), tell):
            result = said
    if result is None:
        result = {
            "peer": config.peer,
            "variant": config.variant,
            "error": f"no result: {_tail(Path(config.log))}",
        }
    return result


def reports(name: str, command: Sequence[str], env: Mapping[str, str], log: Path, tell: Tell) -> Iterator[Any]:
    """Run a command that reports: tells its progress and yields its results. ServerError when it fails."""
    with log.open("ab") as file:
        process = start(command, env=env, stdout=subprocess.PIPE, stderr=file)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            kind, _, rest = line.partition(b" ")
            if kind == b"RESULT":
                yield json.loads(rest)
            elif kind == b"PROGRESS":
                said = json.loads(rest)
                tell(said["phase"], said["done"], said["of"])
    finally:
        stop([process], timeout=60)  # it has ended, or we are being stopped
        process.stdout.close()
    if process.returncode:
        raise ServerError(f"{name} failed; the end of {log}:\n{log.read_text()[-2000:]}")


def config_of(place: Place, name: str, variant: str, workload: str, tasks: int, **more: Any) -> Config:
    """What one run is told."""
    return Config(
        peer=name, variant=variant, workload=workload, tasks=tasks, ms=WORKLOADS[workload].ms,
        database_url=place.database_url, redis_url=place.redis_url, servers=place.pids,
        channel=str(place.folder / CHANNEL_FILE), log=str(place.folder.parent / f"{name}-{variant}.log"), **more,
    )  # fmt: skip


def interleaved(specs: Sequence[tuple[str, str]], runs: int) -> list[tuple[int, str, str]]:
    """Round 1 of every peer, then round 2: what changes on the machine meanwhile meets all of them."""
    return [(run, name, variant) for run in range(1, runs + 1) for name, variant in specs]


def _tail(log: Path) -> str:
    try:
        return " | ".join(log.read_text(errors="replace").splitlines()[-3:])[-400:]
    except OSError:
        return "it said nothing"
