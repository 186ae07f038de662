"""The connections of an API process: as many as its files allow, and of one address no more than its share.

The server accepts connections before any code of ours runs, and keeps a silent one for half a minute. So a thread checks
once a second which addresses have too many, and closes those of theirs that have been silent longest.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from slackwater_conf import conf

FILES: Final = Path("/proc/self/fd")
CHECK_INTERVAL_S: Final = 1.0
SILENT_MS: Final = 1_000
"""A connection on which something passed within this time is not ended."""
INFO: Final = struct.Struct("44xIII")
"""Of the kernel's ``tcp_info``: milliseconds since data was sent (and acknowledged, not used), and since some came."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Connection:
    """A client's connection; ``socket`` is a second handle on it."""

    socket: socket.socket
    address: str

    @property
    def silent_ms(self) -> int:
        """Milliseconds since data passed, either way."""
        sent, _, received = INFO.unpack(self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO.size))
        return int(min(sent, received))


def raise_file_limit() -> None:
    """Let this process have as many files, and so connections, as the machine's operator allows it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _handles() -> Iterator[socket.socket]:
    """A second handle on each socket of this process; it stays valid when the first is closed meanwhile."""
    for name in os.listdir(FILES):  # noqa: PTH208 (numbers, not paths)
        with contextlib.suppress(OSError):
            number = os.dup(int(name))
            try:
                handle = socket.socket(fileno=number)
            except OSError:
                os.close(number)
                continue
            if handle.family in {socket.AF_INET, socket.AF_INET6} and handle.type == socket.SOCK_STREAM:
                yield handle
            else:
                handle.close()


def end_excess(most: int) -> int:
    """Close silent connections of addresses that have more than ``most``, the longest silent first; returns how many."""
    ports: set[int] = set()
    found: list[Connection] = []
    handles = list(_handles())
    try:
        for handle in handles:
            with contextlib.suppress(OSError):
                if handle.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    ports.add(handle.getsockname()[1])
                else:
                    found.append(Connection(handle, str(handle.getpeername()[0])))
        by_address: dict[str, list[Connection]] = defaultdict(list)
        for connection in found:
            with contextlib.suppress(OSError):
                if connection.socket.getsockname()[1] in ports:
                    by_address[connection.address].append(connection)
        return sum(_end(some, len(some) - most) for some in by_address.values() if len(some) > most)
    finally:
        for handle in handles:
            handle.close()


def _end(some: list[Connection], count: int) -> int:
    silent = sorted(((each.silent_ms, n) for n, each in enumerate(some)), reverse=True)[:count]
    chosen = [some[n] for silent_ms, n in silent if silent_ms >= SILENT_MS]
    for each in chosen:
        with contextlib.suppress(OSError):
            each.socket.shutdown(socket.SHUT_RDWR)
    if chosen:
        log.warning("connections ended", address=chosen[0].address, ended=len(chosen), had=len(some))
    return len(chosen)


def watch() -> None:
    """Check every second, in a thread of its own, where the setting limits the connections of an address."""
    most = conf().api_connections_per_address
    if not most or not FILES.is_dir():
        return

    def look() -> None:
        pause = threading.Event()
        while not pause.wait(CHECK_INTERVAL_S):
            # Counting the files is cheap; each is looked at only when there are many.
            with contextlib.suppress(OSError):
                if sum(1 for _ in FILES.iterdir()) > most:
                    end_excess(most)

    threading.Thread(target=look, name="connections", daemon=True).start()
