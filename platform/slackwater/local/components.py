"""The components of one machine, as data."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

WORKER_DRAIN = 40.0  # seconds a worker may take to finish or hand back what it holds
STOP_TIMEOUT = 10.0  # seconds for the others
FLOWER_USER = "admin"
# Connections, also those that send nothing: at granian's own limit of 1,024 it takes in no others, good ones neither.
MANY = ("--backlog", "4096", "--backpressure", "16384")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A process to keep running.

    `stop_phase`: phases are stopped one after the other, the lowest first. `stop_timeout`: seconds between
    the request to stop and the kill. `env` is added to the environment of all. What a `plain` one says is for
    the reader alone: it goes to the common log as it is, and into no file. One that comes `after_workers` is
    started when the API answers and the first worker is there, and takes no processor time from them before.
    A `forked` one is made by the fork server, where there is one; its command is a module of Python's.
    """

    name: str
    command: tuple[str, ...]
    stop_phase: int = 1
    stop_timeout: float = STOP_TIMEOUT
    env: Mapping[str, str] = field(default_factory=dict)
    plain: bool = False
    after_workers: bool = False
    forked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What `up` was asked for. `workers` worker processes, each with `concurrency` children."""

    host: str
    port: int
    flower_port: int
    workers: int
    concurrency: int
    flower_password: str = field(default="", repr=False)


def celery_command(*arguments: str, app: str = "slackwater") -> tuple[str, ...]:
    """The command line of a part of Celery."""
    return (sys.executable, "-m", "celery", "--quiet", "-A", app, *arguments)


def manage_command(*arguments: str) -> tuple[str, ...]:
    """The command line of a management command."""
    return (sys.executable, "-m", "slackwater", *arguments)


def _worker(number: int, layout: Layout) -> Component:
    options = ("--without-gossip", "--without-mingle", "--loglevel", "INFO")
    return Component(
        name=f"worker-{number}",
        command=celery_command("worker", "-n", f"worker{number}@%h", "-c", str(layout.concurrency), *options),
        stop_phase=0,
        stop_timeout=WORKER_DRAIN,
        forked=True,
    )


def preparation(*, url: str) -> Component:
    """Return what runs once, before all others: migrations, the first administrator, the demo tenant."""
    command = manage_command("create_demo", "--migrate", "--url", url)
    return Component(name="prepare", command=command, plain=True)


def components(layout: Layout) -> Sequence[Component]:
    """Return what runs beside the servers, in the order of starting."""
    api = (sys.executable, "-m", "granian", "--interface", "asginl", "--workers", "1", "--no-ws", *MANY)
    listen = ("--host", layout.host, "--port", str(layout.port), "--log-level", "warning")
    flower = ("flower", "--address=127.0.0.1", f"--port={layout.flower_port}", "--logging=warning")
    return [
        Component(name="api", command=(*api, *listen, "slackwater.asgi:application"), forked=True),
        Component(name="dispatcher", command=manage_command("run_dispatcher"), forked=True),
        *(_worker(number, layout) for number in range(1, layout.workers + 1)),
        Component(name="upkeep", command=manage_command("run_upkeep"), forked=True),
        Component(
            name="beat",
            command=celery_command("beat", "--pidfile=", "--loglevel", "INFO"),
            after_workers=True,
            forked=True,
        ),
        Component(
            name="flower",
            command=celery_command(*flower, app="slackwater.flower"),
            # It has no key and no database: it looks, and its password is on no command line.
            env={
                "FLOWER_BASIC_AUTH": f"{FLOWER_USER}:{layout.flower_password}",
                "SLACKWATER_SECRET_KEY": "",
                "SLACKWATER_SECRETS_KEYS": "",
                "SLACKWATER_DATABASE_URL": "",
                "DJANGO_SETTINGS_MODULE": "",
            },
            after_workers=True,
        ),
    ]
