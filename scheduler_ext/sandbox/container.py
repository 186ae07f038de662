"""A slot whose scripts run in containers: a connection to the runner, which alone speaks to the engine.

What the two say to each other is described in :mod:`scheduler_ext.runner`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import socket
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from scheduler_ext.conf import SchedulerConf, runner_address
from scheduler_ext.sandbox import frames
from scheduler_ext.sandbox.base import Ended, Level, Order, SlotError
from scheduler_ext.sandbox.slot import Runner

PROTOCOL: Final = 3
CONNECT_S: Final = 5.0
BEAT_S: Final = 0.4
"""The agent's own beat comes more often than a runner, perhaps elsewhere, needs to hear it."""
_CHUNK: Final = 262_144


def proof(token: bytes, nonce: str) -> str:
    """Shows that one has the token, without sending it."""
    return hmac.new(token, nonce.encode(), hashlib.sha256).hexdigest()


def read_token(path: str) -> bytes:
    """The token in this file; ``SlotError`` where there is none."""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise SlotError(f"the runner's token cannot be read: {error}") from error
    if len(token) < 16:
        raise SlotError(f"the runner's token in {path} has less than 16 characters")
    return token


class ContainerSlot(Runner):
    """Runs one script at a time."""

    level = Level.CONTAINER
    process = None

    def __init__(self, conf: SchedulerConf) -> None:
        self._address, self._token_file = conf.runner, conf.runner_token_file
        self.facts: dict[str, Any] = {}
        self._socket: socket.socket | None = None
        self._parser = frames.Parser()
        self._heard: list[frames.Frame] = []
        self._sending = False
        self._held: list[dict[str, Any]] = []
        self._runs = False
        self._beaten = 0.0

    async def start(self) -> None:
        """Connect unless connected; ``SlotError`` where the runner is away or refuses."""
        if self._socket is not None and not self._is_gone():
            return
        self.close()
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._connect()
        except (OSError, ValueError, TimeoutError, frames.FrameError) as error:
            self.close()
            raise SlotError(f"the runner at {self._address} cannot be reached: {str(error) or 'no answer'}") from error
        except BaseException:
            self.close()
            raise

    def _is_gone(self) -> bool:
        """Between two scripts the runner says nothing: what can be read is its end."""
        assert self._socket is not None
        try:
            return self._socket.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def _connect(self) -> None:
        await self._reach(runner_address(self._address))
        self._parser, self._heard = frames.Parser(), []
        greeting, _ = await self._receive()
        if "error" in greeting:
            raise SlotError(f"the runner at {self._address}: {greeting['error']}")
        if greeting.get("runner") != PROTOCOL:
            raise SlotError(f"the runner speaks version {greeting.get('runner')} of the protocol, not {PROTOCOL}")
        nonce = str(greeting.get("nonce"))
        shown = proof(read_token(self._token_file), nonce)
        await self._send({"do": "hello", "proof": shown, "node": socket.gethostname()})
        self.facts, _ = await self._receive()
        if "error" in self.facts:
            raise SlotError(f"the runner refused: {self.facts['error']}")

    async def _reach(self, target: tuple[str, int] | str) -> None:
        loop = asyncio.get_running_loop()
        where: Any = target
        if isinstance(target, str):
            self._socket = socket.socket(socket.AF_UNIX)
        else:
            found = await loop.getaddrinfo(*target, type=socket.SOCK_STREAM)
            self._socket, where = socket.socket(found[0][0], socket.SOCK_STREAM), found[0][4]
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket.setblocking(False)  # noqa: FBT003 - the standard library's signature
        await loop.sock_connect(self._socket, where)

    async def status(self) -> dict[str, Any]:
        """What the runner says of itself, ``containers`` that run a script among it."""
        await self.start()
        await self._send({"do": "status"})
        return (await self._receive())[0]

    async def run(self, order: Order, out: int, err: int) -> Ended:
        await self.start()
        try:
            return await self._run(order, {"out": out, "err": err})
        except frames.FrameError as error:
            self.close()
            raise SlotError(f"the runner was not understood: {error}") from error
        except BaseException:
            self.close()  # what runs there ends with the connection
            raise
        finally:
            self._runs = False

    async def _run(self, order: Order, outputs: dict[str, int]) -> Ended:
        saves, parts = order.saves, [order.script, order.inputs]
        message: dict[str, Any] = {"do": "run", "limits": asdict(order.limits), "env": dict(order.env)}
        if saves is not None:
            message["saves"] = {"every_s": saves.every_s, "most_bytes": saves.most_bytes}
            parts.append(saves.content or b"")
        if order.lease_s is not None:
            message |= {"lease_s": order.lease_s, "left_s": order.lease_until - time.monotonic()}
        message["parts"] = [len(part) for part in parts]
        for handle in outputs.values():
            os.set_blocking(handle, False)
        self._runs, artifacts = True, None
        await self._send(message, b"".join(parts))
        while True:
            answer, content = await self._receive()
            stream = next(iter(answer.keys() & outputs.keys()), None)
            if stream is not None:
                await _write(outputs[stream], content)
            elif "artifacts" in answer:
                artifacts = content
            elif saves is None or not await self._keep(saves, answer, content):
                break
        if "error" in answer:
            raise SlotError(str(answer["error"]))
        result = content if answer.pop("result") else None
        return Ended(result=result, artifacts=artifacts, **answer)

    def beat(self, now: float, until: float) -> None:
        if now - self._beaten > BEAT_S:
            self._beaten = now
            self._tell_if_there({"do": "beat", "left_s": until - now})

    def close(self) -> None:
        """Leave the runner, which ends whatever runs."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tell_if_there(self, message: dict[str, Any]) -> None:
        """Send a short message now, or after the one that is on its way; none without an order before it."""
        if not self._runs:
            return
        if self._sending:
            self._held.append(message)
        elif self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send(frames.pack(message))

    async def _send(self, message: dict[str, Any], content: bytes = b"") -> None:
        assert self._socket is not None
        self._sending = True
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, frames.pack(message, content))
        except OSError as error:
            raise SlotError(f"the runner could not be reached: {error}") from error
        finally:
            self._sending = False
            held, self._held = self._held, []
        for each in held:
            self._tell_if_there(each)

    async def _receive(self) -> frames.Frame:
        """The runner's next message; one of its end when it is gone."""
        while not self._heard:
            assert self._socket is not None
            try:
                data = await asyncio.get_running_loop().sock_recv(self._socket, _CHUNK)
            except OSError as error:
                return {"error": f"the runner went away: {error}"}, b""
            if not data:
                return {"error": "the runner went away"}, b""
            self._heard += self._parser.feed(data)
        return self._heard.pop(0)


async def _write(handle: int, content: bytes) -> None:
    """Write all of it, however slowly it is read; to nobody where nobody reads any more."""
    loop, view = asyncio.get_running_loop(), memoryview(content)
    with contextlib.suppress(BrokenPipeError):
        while view:
            try:
                view = view[os.write(handle, view) :]
            except BlockingIOError:
                writable = loop.create_future()
                loop.add_writer(handle, lambda ready=writable: ready.done() or ready.set_result(None))  # type: ignore[misc]
                try:
                    await writable
                finally:
                    loop.remove_writer(handle)
