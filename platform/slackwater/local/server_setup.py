"""The two servers of `make up`: our own, or those the environment points to."""

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from slackwater.local.console import Console
from slackwater.local.servers import EmbeddedPostgres, EmbeddedRedis, ServerError, socket_folder
from slackwater.settings.place import ROOT, is_checkout

MIN_POSTGRES = 150_000  # libpq's spelling of 15.0
POLL_S = 1.0  # seconds between looks whether a server still runs
MAX_BACK_OFF_S = 10.0  # seconds


class Servers:
    """PostgreSQL and Redis for as long as the platform runs; a crashed one of ours is brought back."""

    def __init__(self, var: Path, console: Console, *, database_url: str, redis_url: str) -> None:
        self._console = console
        self._given = {"SLACKWATER_DATABASE_URL": database_url, "SLACKWATER_REDIS_URL": redis_url}
        run = socket_folder(var)
        self.postgres = None
        self.redis = None
        if not database_url:
            self.postgres = EmbeddedPostgres(var / "postgres", run, log=console.path("postgres"))
        if not redis_url:
            self.redis = EmbeddedRedis(var / "redis", run, log=console.path("redis"))

    def start(self) -> None:
        """Start ours, look whether those given can be reached. Raises ServerError saying what is wrong."""
        if self.postgres:
            self.postgres.start()
        else:
            _check_postgres(self._given["SLACKWATER_DATABASE_URL"])
        if self.redis:
            self.redis.start()
        else:
            _check_redis(self._given["SLACKWATER_REDIS_URL"])

    def stop(self) -> None:
        """Stop ours; repeating it is harmless."""
        if self.redis:
            self.redis.stop()
        if self.postgres:
            self.postgres.stop()

    @property
    def urls(self) -> Mapping[str, str]:
        """The URLs under the names of their environment variables."""
        urls = dict(self._given)
        if self.postgres:
            urls["SLACKWATER_DATABASE_URL"] = self.postgres.url
        if self.redis:
            urls["SLACKWATER_REDIS_URL"] = self.redis.url
        return urls

    async def watch(self) -> None:
        """Bring back a server of ours that ends unasked, until cancelled."""
        ours = [server for server in (self.postgres, self.redis) if server is not None]
        await asyncio.gather(*(self._watch_one(server) for server in ours))

    async def _watch_one(self, server: EmbeddedPostgres | EmbeddedRedis) -> None:
        back_off = POLL_S
        while True:
            await asyncio.sleep(POLL_S)
            code = server.process.exit_code()
            if code is None:
                continue
            self._console.line("up", f"{server.process.name} ended (exit code {code}); starting it again")
            await asyncio.sleep(back_off)
            try:
                # Started in this thread, because the kernel ties the server's life to the thread that starts it.
                server.spawn()
                await asyncio.to_thread(server.wait_ready)
                back_off = POLL_S
            except ServerError as error:
                back_off = min(back_off * 2, MAX_BACK_OFF_S)
                self._console.line("up", f"{error}\nnext try in {back_off:g} s")


def _check_postgres(url: str) -> None:
    import psycopg  # here as below: with servers of ours nobody needs it

    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            version = connection.info.server_version
    except psycopg.Error as error:
        raise ServerError(f"PostgreSQL at SLACKWATER_DATABASE_URL cannot be used: {error}") from error
    if version < MIN_POSTGRES:
        raise ServerError(
            f"PostgreSQL at SLACKWATER_DATABASE_URL is version {version // 10_000}; 15 to 18 are supported"
        )


def _check_redis(url: str) -> None:
    import redis

    try:
        with contextlib.closing(redis.Redis.from_url(url, socket_connect_timeout=5)) as client:
            client.ping()
    except (redis.RedisError, ValueError, OSError) as error:
        raise ServerError(f"Redis at SLACKWATER_REDIS_URL cannot be used: {error}") from error


def component_environment(servers: Servers, *, public_url: str, marker: str) -> dict[str, str]:
    """Return the environment every component is started with."""
    return {
        "MALLOC_ARENA_MAX": "2",  # an arena for each thread is memory for speed that nobody would notice
        # Celery warns root of pickled messages; ours accepts JSON only.
        "PYTHONWARNINGS": "ignore:You're running the worker with superuser",
        **os.environ,
        **servers.urls,
        "SLACKWATER_PUBLIC_URL": public_url,
        "SLACKWATER_SUPERVISOR": marker,
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(source_folders()),
    }


def source_folders() -> list[str]:
    """Where Python finds what is used from where it lies; an installed package is found anyway."""
    folders = [ROOT, ROOT / "platform", ROOT / "apps"] if is_checkout() else []
    return list(dict.fromkeys([*map(str, folders), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))
