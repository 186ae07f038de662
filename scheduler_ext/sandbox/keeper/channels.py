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
    """The keeper's side. What it cannot send raises ``OSError``."""

    def listen(self, selector: selectors.BaseSelector) -> None:
        """Have ``selector`` wake for it. A key whose data can be called is to be called; another means: receive."""

    def receive(self) -> list[Heard]:
        """What has come."""

    def tell(self, message: dict[str, Any], content: bytes | None = None) -> None:
        """Send a message, with a content where there is one."""


class SocketChannel:
    """To an agent on the same machine: contents are handed over as descriptors, nothing is copied."""

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
    """A file in memory that holds this; the caller closes it."""
    handle = os.memfd_create(name)
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
    return handle
