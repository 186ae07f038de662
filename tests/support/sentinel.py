"""A group of Redis-compatible servers with three sentinels, as processes of this machine."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from slackwater.local.process import tied
from slackwater.local.servers.folders import free_port
from slackwater.local.servers.redis import program
from tests.support.waiting import wait_until

PASSWORD = "only-for-tests"
NAME = "mymaster"
DOWN_AFTER_MS = 3000


@dataclass(slots=True)
class SentinelGroup:
    """A master, a replica, and three sentinels that agree when two of them miss the master."""

    folder: Path
    servers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    sentinels: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        master, replica = free_port(), free_port()
        common = f'bind 127.0.0.1\nsave ""\nrequirepass {PASSWORD}\nmasterauth {PASSWORD}\n'
        self._start(self.servers, master, f"{common}port {master}\n")
        self._start(self.servers, replica, f"{common}port {replica}\nreplicaof 127.0.0.1 {master}\n")
        # A sentinel looks every ten seconds: it must find the replica at its first look.
        wait_until(lambda: self._has_replica(master), message="the replica is in step")
        for port in [free_port() for _ in range(3)]:
            self._start(self.sentinels, port, (
                f"bind 127.0.0.1\nport {port}\nsentinel monitor {NAME} 127.0.0.1 {master} 2\n"
                f"sentinel auth-pass {NAME} {PASSWORD}\nsentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n"
                f"sentinel failover-timeout {NAME} 5000\n"
            ), "--sentinel")  # fmt: skip
        wait_until(self._is_ready, message="the sentinels know each other and the replica")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in [*self.sentinels.values(), *self.servers.values()]:
            process.kill()
            process.wait()

    @property
    def url(self) -> str:
        """The group's URL."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        return f"sentinel://:{PASSWORD}@{hosts}/0?master={NAME}"

    def master(self) -> int:
        """Port of the master, as the first sentinel sees it."""
        with redis.Redis(port=next(iter(self.sentinels))) as client:
            return int(client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1])

    def kill_master(self) -> int:
        """Kill -9 the present master; its port."""
        port = self.master()
        self.servers[port].kill()
        self.servers[port].wait()
        return port

    def _has_replica(self, port: int) -> bool:
        try:
            with redis.Redis(port=port, password=PASSWORD) as client:
                return bool(client.info("replication").get("slave0", {}).get("state") == "online")
        except redis.RedisError:
            return False

    def _is_ready(self) -> bool:
        for port in self.sentinels:
            try:
                with redis.Redis(port=port) as client:
                    found = client.sentinel_master(NAME)
            except redis.RedisError:
                return False
            if (found["num-other-sentinels"], found["num-slaves"]) != (2, 1):
                return False
        return True

    def _start(self, kind: dict[int, subprocess.Popen[bytes]], port: int, configuration: str, *options: str) -> None:
        path = self.folder / f"{port}.conf"
        path.write_text(configuration + f'dir "{self.folder}"\n')
        with (self.folder / f"{port}.log").open("ab") as log:
            kind[port] = subprocess.Popen(
                tied([str(program()), str(path), *options]), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
