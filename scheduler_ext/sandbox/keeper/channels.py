"""How a keeper receives its agent's messages and answers them, over a local socket or in another way."""

from __future__ import annotations

import os
import selectors
import socket
from typing import Any, Protocol

from scheduler_ext.sandbox.keeper import prefork

Heard = tuple[dict[str, Any] | None, list[int]]
"""A message with the descriptors that came with it; ``None`` when the agent is gone."""


class Channel(Protocol):
    """The keeper's side. A message that cannot be sent raises ``OSError``."""

    def listen(self, selector: selectors.BaseSelector) -> None:
        """Register with ``selector``. A key whose data is callable is to be called; for any other: receive."""

    def receive(self) -> list[Heard]:
        """Receive the messages that have come."""

    def tell(self, message: dict[str, Any], content: bytes | None = None) -> None:
        """Send a message, with a content if there is one."""


class SocketChannel:
    """The channel to an agent on the same machine: contents are passed as descriptors, nothing is copied."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control

    def listen(self, selector: selectors.BaseSelector) -> None:
        selector.register(self._control, selectors.EVENT_READ)

    def receive(self) -> list[Heard]:
        return [prefork.receive(self._control)]

    def tell(self, message: dict[str, Any], content: bytes | None = None) -> None:
        """The content lies in a file in memory."""
        if content is None:
            prefork.tell(self._control, message)
            return
        handle = memory_file("handed", content)
        try:
            prefork.tell(self._control, message, [handle])
        finally:
            os.close(handle)


def memory_file(name: str, content: bytes) -> int:
    """A file in memory with this content; the caller closes it."""
    handle = os.memfd_create(name)
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
    return handle
