"""A runner's containers, each from its creation to its removal, and the frames that pass in and out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, Final

from scheduler_ext.runner.engine import Engine, EngineError, Streams, output
from scheduler_ext.runner.options import Options
from scheduler_ext.runner.spec import NODE_LABEL, RUNNER_LABEL, NotAllowed, Shape, container, first_frame
from scheduler_ext.sandbox import frames

log = logging.getLogger(__name__)

REMOVE_TRIES: Final = 5
READY_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0
_STDOUT: Final = 1
_KEPT_STDERR: Final = 4_096


class BoxError(Exception):
    """The container could not be started, or ended by itself; the message says why."""


class Box:
    """A container with a keeper in it, for one script."""

    def __init__(self, engine: Engine, options: Options, shape: Shape, uid: int) -> None:
        self.engine = engine
        self.options = options
        self.shape = shape
        self.uid = uid
        self.facts: dict[str, Any] = {}
        self._id = ""
        self._streams: Streams | None = None
        self._said = bytearray()
        """What it wrote to standard error: why it does not work, and nothing else."""
        self._parser = frames.Parser()
        self._heard: list[frames.Frame] = []

    async def start(self, image: str, node: str, *, v2: bool) -> None:
        """Create and start it; afterwards it waits for a script. ``BoxError`` where that fails."""
        labels = {RUNNER_LABEL: self.options.name, NODE_LABEL: node}
        described = container(self.shape, self.options, image, self.uid, labels, v2=v2)
        try:
            name = f"slackwater-waits-{secrets.token_hex(6)}"
            created = await self.engine.ask("POST", "/containers/create", described, name=name)
            self._id = str(created["Id"])
            if not self.shape.in_memory:
                above, _, folder = self.shape.root.rpartition("/")
                await self.engine.put_folder(self._id, above, folder, self.uid)
            self._streams = await self.engine.attach(self._id)
            await self.engine.ask("POST", f"/containers/{self._id}/start")
            await self._write(first_frame(self.shape))
            async with asyncio.timeout(READY_TIMEOUT_S):
                answer = await self.read()
        except (EngineError, frames.FrameError) as error:
            raise BoxError(f"the container could not be started: {error}") from error
        except TimeoutError as error:
            raise BoxError(f"the container was not ready within {READY_TIMEOUT_S:g} s") from error
        if answer is None:
            raise BoxError(f"the container ended at once: {self.said()}")
        self.facts = answer[0]

    async def rename(self, name: str) -> None:
        """Name it after its run, for people who look at the engine. Nothing depends on the name."""
        with contextlib.suppress(EngineError):
            full = f"slackwater-{name or 'run'}-{secrets.token_hex(4)}"
            await self.engine.ask("POST", f"/containers/{self._id}/rename", name=full)

    async def send(self, message: Mapping[str, Any], content: bytes = b"") -> None:
        """Send a frame to the keeper inside; does nothing when it is gone."""
        await self._write(frames.pack(message, content))

    async def _write(self, data: bytes) -> None:
        assert self._streams is not None
        with contextlib.suppress(OSError):
            self._streams[1].write(data)
            await self._streams[1].drain()

    async def read(self) -> frames.Frame | None:
        """The next frame of the keeper inside; ``None`` when it has ended, ``FrameError`` for nonsense."""
        assert self._streams is not None
        while not self._heard:
            piece = await output(self._streams[0])
            if piece is None:
                return None
            stream, data = piece
            if stream == _STDOUT:
                self._heard += self._parser.feed(data)
            else:
                self._said += data[: _KEPT_STDERR - len(self._said)]
        return self._heard.pop(0)

    def waits(self) -> bool:
        """Whether it still waits: False when it has ended."""
        return self._streams is not None and not self._streams[0].at_eof()

    def said(self) -> str:
        """Why it does not work, in its own words."""
        lines = self._said.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"

    async def ended(self) -> bool:
        """Wait until the engine says that nothing of it runs; True if it ran out of memory. ``BoxError`` otherwise."""
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.engine.ask("POST", f"/containers/{self._id}/wait", condition="not-running")
            seen = await self.engine.ask("GET", f"/containers/{self._id}/json")
        except (EngineError, TimeoutError) as error:
            raise BoxError(f"the container does not end: {error}") from error
        return bool(seen["State"]["OOMKilled"])

    async def kill(self) -> None:
        """End it and all that runs in it, whatever it is doing."""
        if self._id:
            with contextlib.suppress(EngineError):
                await self.engine.ask("POST", f"/containers/{self._id}/kill", absent_ok=True)

    async def remove(self) -> None:
        """End it and leave nothing behind, neither container nor volume. ``EngineError`` where the engine cannot."""
        if self._streams is not None:
            self._streams[1].close()
        if self._id:
            await _remove(self.engine, self._id)
            self._id = ""


async def _remove(engine: Engine, identity: str) -> None:
    """Remove a container and its volume, whatever it is doing."""
    await engine.ask("DELETE", f"/containers/{identity}", absent_ok=True, force=1, v=1)


class Containers:
    """All containers of one runner, and how many scripts run in them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.engine = Engine(options.engine)
        self.image = ""
        self.ending = False
        self.running = 0
        self.idle = asyncio.Event()
        """Set when a script has ended and no other runs."""
        self.jobs: set[asyncio.Task[None]] = set()
        """Background tasks, which are awaited at the end."""
        self._about: dict[str, Any] = {}
        self._v2 = False
        self._uids = set(range(options.uid_base, options.uid_base + 2 * options.runs + 64))

    async def look_around(self) -> None:
        """Find out what the engine is, and pin the image."""
        info = await self.engine.ask("GET", "/info")
        self._v2 = str(info.get("CgroupVersion", "1")) == "2"
        known = info.get("Runtimes") or {}
        if self.options.runtime and self.options.runtime not in known:
            raise EngineError(
                f"the engine knows no runtime {self.options.runtime!r}; it has {', '.join(sorted(known))}"
            )
        try:
            image = await self.engine.ask("GET", f"/images/{self.options.image}/json")
        except EngineError as error:
            raise EngineError(f"image {self.options.image}: {error}; nothing is pulled here") from error
        if (image.get("Config") or {}).get("Volumes"):
            raise EngineError(
                f"image {self.options.image} declares volumes: scripts could write there without any limit"
            )
        self.image = str(image["Id"])
        self._about = {
            "image": self.image, "engine": str(info.get("ServerVersion", "")),
            "runtime": self.options.runtime or str(info.get("DefaultRuntime", "")),
        }  # fmt: skip

    def facts(self) -> dict[str, Any]:
        """What it offers, and how much runs."""
        return {
            **self._about, "network": bool(self.options.network), "containers": self.running, "groups": "engine",
            "uid": self.options.uid_base, "memory": True,
        }  # fmt: skip

    async def sweep(self) -> None:
        """Remove what an earlier runner of this name left: it was killed, or its machine was."""
        filters = json.dumps({"label": [f"{RUNNER_LABEL}={self.options.name}"]})
        for left in await self.engine.ask("GET", "/containers/json", all=1, filters=filters):
            log.warning("container %s was left by a runner that died: removed", left["Names"])
            await _remove(self.engine, left["Id"])

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count one more script; ``NotAllowed`` when that is too many."""
        if self.ending:
            raise NotAllowed("the runner is about to end")
        if self.running >= self.options.runs:
            raise NotAllowed(f"the runner runs {self.running} scripts already (--runs)")
        self.running += 1
        self.idle.clear()
        try:
            yield
        finally:
            self.running -= 1
            if not self.running:
                self.idle.set()

    async def box(self, shape: Shape, node: str) -> Box:
        """A new container that waits for a script; ``BoxError`` if there can be none."""
        if not self._uids:
            raise BoxError("all user ids are in use: the engine does not remove its containers")
        box = Box(self.engine, self.options, shape, self._uids.pop())
        try:
            await box.start(self.image, node, v2=self._v2)
        except BaseException:
            self.discard(box)
            raise
        return box

    def discard(self, box: Box) -> None:
        """Remove a container in the background; its user id is free afterwards."""
        self.later(self._removed(box))

    async def _removed(self, box: Box) -> None:
        for number in range(REMOVE_TRIES):
            try:
                await box.remove()
            except EngineError as error:
                log.warning("a container could not be removed: %s", error)
                await asyncio.sleep(number)
            else:
                self._uids.add(box.uid)
                return

    def later(self, job: Coroutine[Any, Any, None]) -> None:
        """Do something in the background that is awaited at the end."""
        task = asyncio.ensure_future(job)
        self.jobs.add(task)
        task.add_done_callback(self.jobs.discard)
