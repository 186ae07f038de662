"""Ports that a platform has chosen, kept from another that starts on the same machine before anybody listens there."""

from __future__ import annotations

import errno
import os
import socket

from slackwater.local.servers.folders import free_port

TRIES = 20


class Port:
    """A port that this process has spoken for, until it closes it or ends, however it ends."""

    def __init__(self, host: str, number: int) -> None:
        """Raises OSError or OverflowError when somebody has it already, or there is no such port."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, number))
        self.number = number
        # A name of a Unix socket without a file: of one network namespace, as ports are, and never had by two.
        self._mark = socket.socket(socket.AF_UNIX)
        try:
            self._mark.bind(f"\0slackwater-port-{number}")
        except OSError as error:
            self.close()
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)) from error

    def close(self) -> None:
        """Let others have it."""
        self._mark.close()


def choose(host: str, wanted: int) -> Port:
    """The port that is wanted, or a free one where it is 0 or somebody else's."""
    for number in [wanted] * bool(wanted) + [0] * TRIES:
        try:
            return Port(host, number or free_port())
        except OSError as error:
            last = error
    raise last
