"""The whole platform on one machine, from the lock on its folder to the last server stopped."""

import asyncio
import contextlib
import errno
import json
import os
import secrets
import shlex
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from types import FrameType

from slackwater.local import readiness
from slackwater.local.child import Child
from slackwater.local.components import FLOWER_USER, Component, Layout, components, preparation
from slackwater.local.console import Console
from slackwater.local.fork_server import ForkServer
from slackwater.local.guardian import Guardian
from slackwater.local.lock import folder_lock
from slackwater.local.ports import Port, choose
from slackwater.local.server_setup import Servers, component_environment
from slackwater.local.servers import ServerError
from slackwater.local.servers.folders import keep_private, password_in, require_space
from slackwater.settings.local import SERVERS_FILE, write_private

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FLOWER_PORT = 5555
FLOWER_FILE = "flower.password"
READY_TIMEOUT_S = 60.0  # seconds until the table is shown though the API has not answered, or no worker has come


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions(Layout):
    """What `up` was asked for. An empty URL means an embedded server; port 0 means a free one."""

    flower_port: int = FLOWER_PORT
    insists: bool = False
    """Whether somebody chose the port: if it is taken, no other will do."""
    var: Path
    database_url: str
    redis_url: str
    public_url: str


class Stopped(BaseException):
    """A signal asked to stop before everything was up."""


class Supervisor:
    """Runs the components on servers that are up."""

    def __init__(self, options: UpOptions, servers: Servers, console: Console) -> None:
        self._options = options
        self._servers = servers
        self._console = console
        self._stop = asyncio.Event()
        self._complete = asyncio.Event()
        self.url = options.public_url or f"http://{_reachable(options.host)}:{options.port}"
        marker = f"SLACKWATER_SUPERVISOR={secrets.token_hex(8)}"
        self._guardian = Guardian(marker)
        self._env = component_environment(servers, public_url=self.url, marker=marker.partition("=")[2])
        self._forks = ForkServer(self._env)

    async def run(self) -> None:
        """Run until a signal; raises ServerError when the database cannot be prepared."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._stop.set)
        self._guardian.start()
        self._forks.start()
        try:
            if await self._prepare():
                await self._run_components()
        finally:
            self._forks.end()
            self._guardian.dismiss()

    async def _prepare(self) -> bool:
        self._console.plain("Preparing the database …")
        child = self._child(preparation(url=self.url))
        preparing = asyncio.create_task(child.run_once())
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait({preparing, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if self._stop.is_set():
            await child.stop()
            await preparing
            return False
        if await preparing != 0:
            raise ServerError("the database could not be prepared; the reason stands above")
        return True

    async def _run_components(self) -> None:
        children = [self._child(part) for part in components(self._options)]
        keepers = [asyncio.create_task(self._keep(child)) for child in children]
        helpers = [asyncio.create_task(task) for task in (self._servers.watch(), self._introduce(), self._guard())]
        await self._stop.wait()
        self._console.line("up", "stopping; once more to stop at once")
        stopping = asyncio.create_task(_stop_in_order(children))
        # A signal to the whole group comes twice, by way of make: only a later one is a second wish.
        insist = asyncio.get_running_loop().call_later(1.0, _let_signals_kill, children)
        await stopping
        insist.cancel()
        await asyncio.gather(*keepers)
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)

    async def _keep(self, child: Child) -> None:
        if child.component.after_workers:
            stop = asyncio.create_task(self._stop.wait())
            complete = asyncio.create_task(self._complete.wait())
            await asyncio.wait({stop, complete}, return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            complete.cancel()
            if self._stop.is_set():
                return
        await child.keep()

    async def _guard(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._guardian.check()

    async def _introduce(self) -> None:
        lacking = await readiness.awaited(_reachable(self._options.host), self._options.port, patience=READY_TIMEOUT_S)
        if lacking:
            self._console.line("up", f"{lacking} within {READY_TIMEOUT_S:g} s; see the lines above")
        self._complete.set()
        self._console.plain(_table(self._options, self._servers, self.url))

    def _child(self, component: Component) -> Child:
        return Child(component, env=self._env, console=self._console, guardian=self._guardian, forks=self._forks)


def _let_signals_kill(children: list[Child]) -> None:
    def kill_all() -> None:
        for child in children:
            child.kill()

    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, kill_all)


async def _stop_in_order(children: list[Child]) -> None:
    def phase(child: Child) -> int:
        return child.component.stop_phase

    for _, group in groupby(sorted(children, key=phase), key=phase):
        await asyncio.gather(*(child.stop() for child in group))


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _table(options: UpOptions, servers: Servers, url: str) -> str:
    var = options.var
    database = f"embedded, socket in {servers.postgres.run_dir}" if servers.postgres else "SLACKWATER_DATABASE_URL"
    broker = f"embedded, 127.0.0.1:{servers.redis.port}" if servers.redis else "SLACKWATER_REDIS_URL"
    rows = (
        ("API", f"{url}/api/v1/"),
        ("API reference", f"{url}/api/docs/"),
        ("Admin", f"{url}/admin/"),
        ("Flower", f"http://127.0.0.1:{options.flower_port}/ (name {FLOWER_USER}, password in {var / FLOWER_FILE})"),
        ("PostgreSQL", database),
        ("Redis", broker),
        ("Workers", f"{options.workers}, each with {options.concurrency} processes"),
        ("Data, logs", f"{var}, {var / 'log'}"),
        ("Demo key", f"source {shlex.quote(str(var / 'demo.env'))} (or demo-free.env: the plan free)"),
        ("Stop", f"Ctrl-C, or kill {os.getpid()}"),
    )
    lines = [f"  {name:<14} {what}" for name, what in rows]
    width = max(map(len, lines)) + 2
    return "\n".join(["", "Slackwater is up".center(width, "─"), *lines, "─" * width, ""])


@contextlib.contextmanager
def with_ports(options: UpOptions) -> Iterator[UpOptions]:
    """Choose the ports that are left to choose; no other platform on the machine does while the `with` lasts.

    Raises ServerError when the one that was asked for is taken.
    """
    password = password_in(options.var / FLOWER_FILE, data_exists=False, server="Flower")
    with contextlib.closing(_port(options)) as port, contextlib.closing(choose("127.0.0.1", FLOWER_PORT)) as flower:
        yield replace(options, port=port.number, flower_port=flower.number, flower_password=password)


def _port(options: UpOptions) -> Port:
    try:
        if options.insists and options.port:
            return Port(options.host, options.port)
        return choose(options.host, options.port)
    except (OSError, OverflowError, UnicodeError) as error:
        if isinstance(error, (socket.gaierror, UnicodeError)) or getattr(error, "errno", 0) == errno.EADDRNOTAVAIL:
            raise ServerError(
                f"SLACKWATER_HOST is {options.host}, which is no address of this machine: {error}"
            ) from error
        raise ServerError(
            f"port {options.port} of {options.host} cannot be used: {error}; choose another with SLACKWATER_PORT "
            "(0 takes a free one)"
        ) from error


@contextlib.contextmanager
def _servers_file(var: Path, servers: Servers, *, url: str) -> Iterator[None]:
    path = var / SERVERS_FILE
    contents = {"supervisor": os.getpid(), "SLACKWATER_PUBLIC_URL": url, **servers.urls}
    write_private(path, json.dumps(contents, indent=2))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _raise_stopped(number: int, frame: FrameType | None) -> None:
    raise Stopped


def run_platform(options: UpOptions) -> None:
    """Run everything until a signal; raises ServerError when something prevents it.

    The order of stopping is that of starting, turned round: workers first, servers last.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, _raise_stopped)
    with contextlib.suppress(Stopped), folder_lock(options.var), contextlib.ExitStack() as kept:
        keep_private(options.var)
        require_space(options.var)
        is_first = not (options.var / FLOWER_FILE).exists()
        options = kept.enter_context(with_ports(options))
        console = Console(options.var / "log")
        if is_first:
            words = f"name {FLOWER_USER}, password {options.flower_password}"
            console.plain(f"Flower's, shown this once and kept in {options.var / FLOWER_FILE}: {words}")
        servers = Servers(options.var, console, database_url=options.database_url, redis_url=options.redis_url)
        try:
            servers.start()
            asyncio.run(_run(options, servers, console))
        finally:
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            servers.stop()
            console.line("up", "stopped")


async def _run(options: UpOptions, servers: Servers, console: Console) -> None:
    supervisor = Supervisor(options, servers, console)
    with _servers_file(options.var, servers, url=supervisor.url):
        await supervisor.run()
