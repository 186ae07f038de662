"""What hostile scripts are given to attack: a secret, a victim, servers of every kind, shared memory."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hashlib
import os
import secrets
import subprocess
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psutil

BANNER = b"reached"
_CREATE = 0o1666
_REMOVE = 0


@dataclass
class Targets:
    """Everything that must be untouched afterwards."""

    folder: Path
    mark: str = field(default_factory=lambda: f"{3_000_000 + secrets.randbelow(1_000_000)}.5")
    password: str = field(default_factory=lambda: f"password-{secrets.token_hex(16)}")
    tcp_port: int = 0
    udp_port: int = 0
    shm_key: int = field(default_factory=lambda: secrets.randbelow(1 << 30) + 1)
    shm_id: int = -1
    victim: subprocess.Popen[bytes] | None = None

    @property
    def secret(self) -> Path:
        """A file that everyone on this machine may read."""
        return self.folder / "secret"

    @property
    def unix_socket(self) -> Path:
        """A server's socket."""
        return self.folder / "server.sock"

    def described(self, slots: Path) -> dict[str, Any]:
        """What a script is told."""
        victim = self.revive()
        return {
            "secret": str(self.secret), "unix_socket": str(self.unix_socket), "mark": self.mark,
            "abstract_socket": self.password[:30], "password": self.password[20:], "tcp_port": self.tcp_port,
            "udp_port": self.udp_port, "shm_key": self.shm_key, "shm_id": self.shm_id, "victim": victim,
            "worker": os.getpid(), "slots": str(slots), "code": str(Path(__file__).parents[3]),
            "users": hashlib.sha256(Path("/etc/passwd").read_bytes()).hexdigest(),
        }  # fmt: skip

    def revive(self) -> int:
        """The victim's process id; a new one when the last was killed."""
        if self.victim is None or self.victim.poll() is not None:
            self.victim = subprocess.Popen(
                ["/bin/sleep", "3600"], env={"PASSWORD": self.password}, start_new_session=True
            )
        return self.victim.pid

    def harmed(self) -> str:
        """What was done to them; empty: nothing."""
        if self.victim is None or self.victim.poll() is not None:
            return "the victim was killed"
        if psutil.Process(self.victim.pid).nice() != os.nice(0):
            return "the victim was slowed down"
        if self.secret.read_text() != self.password:
            return "the secret was changed"
        for name in os.listdir("/proc"):  # noqa: PTH208 - names only
            with contextlib.suppress(OSError):
                if name.isdigit() and self.mark.encode() in Path("/proc", name, "cmdline").read_bytes():
                    return f"process {name} of the script lives on"
        return ""


class _Echo(asyncio.DatagramProtocol):
    transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(BANNER, addr)


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    del reader
    writer.write(BANNER)
    with contextlib.suppress(OSError):
        await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def targets() -> AsyncIterator[Targets]:
    """Set them up, and take them away."""
    loop = asyncio.get_running_loop()
    libc = ctypes.CDLL(None)
    with tempfile.TemporaryDirectory(prefix="slackwater-targets-") as folder:
        made = Targets(Path(folder))
        made.folder.chmod(0o755)
        made.secret.write_text(made.password)
        made.secret.chmod(0o644)
        server = await asyncio.start_server(_greet, "127.0.0.1", 0)
        made.tcp_port = server.sockets[0].getsockname()[1]
        local = await asyncio.start_unix_server(_greet, made.unix_socket)
        made.unix_socket.chmod(0o777)
        abstract = await asyncio.start_unix_server(_greet, "\0" + made.password[:30])
        datagrams, _ = await loop.create_datagram_endpoint(_Echo, ("127.0.0.1", 0))
        made.udp_port = datagrams.get_extra_info("sockname")[1]
        made.shm_id = libc.shmget(made.shm_key, 4096, _CREATE)
        try:
            yield made
        finally:
            libc.shmctl(made.shm_id, _REMOVE, None)
            for closing in (server, local, abstract):
                closing.close()
            datagrams.close()
            if made.victim is not None:
                made.victim.kill()
                made.victim.wait()
