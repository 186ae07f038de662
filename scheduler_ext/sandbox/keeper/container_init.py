"""The keeper inside a container (or a virtual machine): its first process, which runs one script and ends.

It is the same keeper that contains scripts on a node, with other surroundings. The runner sends it the code of this
package over its standard input, so that an image needs nothing but Python (3.11 or newer); its messages come as
:mod:`scheduler_ext.sandbox.frames` over standard input and output, and so does the output of the script. That its
standard input ends means that its runner is gone: then it ends, and with the first process the kernel ends all others.

The script has the same user, but cannot reach it: signals from inside do not reach the first process of a process
namespace, and nobody without privileges may look into one that says it is not dumpable.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

from scheduler_ext.sandbox import frames
from scheduler_ext.sandbox.base import Level, Limits
from scheduler_ext.sandbox.keeper import cgroups, work_folder
from scheduler_ext.sandbox.keeper.channels import Heard, memory_file
from scheduler_ext.sandbox.keeper.keeper import Keeper, Plan, Run
from scheduler_ext.sandbox.landlock import _libc

IN: Final = 0
OUT: Final = 1
CHUNK: Final = 65_536
MAX_WAITING: Final = 1 << 20
"""While so many bytes wait for the runner, the script's output is not read."""
LATE_S: Final = 60.0
"""Seconds added to its cap; the agent and the runner end a script earlier."""
_NOT_DUMPABLE: Final = (4, 0)
_GROUPS: Final = Path("/sys/fs/cgroup")


class StdioChannel:
    """The runner at the other end of standard input and output."""

    def __init__(self) -> None:
        self._parser = frames.Parser()
        self._selector: selectors.BaseSelector
        self._waiting = bytearray()
        self._pipes: dict[int, str] = {}
        self._writing = False
        for handle in (IN, OUT):
            os.set_blocking(handle, False)

    def listen(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        selector.register(IN, selectors.EVENT_READ)

    def receive(self) -> list[Heard]:
        """The messages that are complete. One to run a script gets pipes for its output."""
        try:
            data = os.read(IN, 4 * CHUNK)
        except BlockingIOError:
            return []
        if not data:
            return [(None, [])]
        return [self._heard(*each) for each in self._parser.feed(data)]

    def _heard(self, message: dict[str, Any], content: bytes) -> Heard:
        if message["do"] != "run":
            return message, []
        parts = frames.split(content, message.pop("parts"))
        return message, [self._pipe("out"), self._pipe("err"), *(memory_file("part", part) for part in parts)]

    def _pipe(self, name: str) -> int:
        readable, writable = os.pipe()
        os.set_blocking(readable, False)
        self._pipes[readable] = name
        self._selector.register(readable, selectors.EVENT_READ, lambda: self._pump(readable))
        return writable

    def _pump(self, pipe: int) -> None:
        """Pass on what the script wrote."""
        with contextlib.suppress(BlockingIOError):
            if data := os.read(pipe, CHUNK):
                self.tell({self._pipes[pipe]: len(data)}, data)
            else:
                if pipe in self._selector.get_map():
                    self._selector.unregister(pipe)
                del self._pipes[pipe]
                os.close(pipe)

    def tell(self, message: dict[str, Any], content: bytes | None = None) -> None:
        """Send a frame. The one that tells of the script's end is the last: then everything ends."""
        last = "code" in message
        if last:
            self._drain()
            message = {**message, "result": content is not None}
        self._waiting += frames.pack(message, content or b"")
        if last:
            os.set_blocking(OUT, True)
        self._flush()
        if last:
            os._exit(0)

    def _drain(self) -> None:
        """Empty the pipes: nothing of the script runs any more, so what they hold is all."""
        while True:
            before = len(self._waiting)
            for pipe in tuple(self._pipes):
                self._pump(pipe)
            if len(self._waiting) == before:
                return

    def _flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._waiting:
                del self._waiting[: os.write(OUT, bytes(self._waiting[: 4 * CHUNK]))]
        if bool(self._waiting) != self._writing:
            self._writing = not self._writing
            if self._writing:
                self._selector.register(OUT, selectors.EVENT_WRITE, self._flush)
            else:
                self._selector.unregister(OUT)
        wanted = len(self._waiting) < MAX_WAITING
        for pipe in self._pipes:
            if wanted and pipe not in self._selector.get_map():
                self._selector.register(pipe, selectors.EVENT_READ, lambda pipe=pipe: self._pump(pipe))
            elif not wanted and pipe in self._selector.get_map():
                self._selector.unregister(pipe)


class _Given(cgroups.Groups):
    """The container's own groups, which the engine has limited and which can only be read here."""

    _own_mb = 0

    def enter(self) -> None:
        """Nothing to do: it is in them already."""

    def limit(self, limits: Limits, memory_mb: int) -> None:
        """Nothing to do: the engine has set them."""

    def begin(self) -> None:
        """Begin to count: what this process itself holds is not the script's."""
        super().begin()
        self._own_mb = 0
        self._own_mb = self.memory_mb() or 0

    def memory_mb(self) -> int | None:
        """Without this process's own share."""
        return max(0, (super().memory_mb() or 0) - self._own_mb)

    def after(self) -> None:
        """Nothing to do: they go with the container."""

    def remove(self) -> None:
        """Nothing to do: they go with the container."""


class _GivenV1(_Given, cgroups.GroupsV1):
    """Version 1."""


class _GivenV2(_Given, cgroups.GroupsV2):
    """Version 2."""


def given_groups() -> cgroups.Groups:
    """The groups that count the script's use; without any where they cannot be seen (a virtual machine's runtime)."""
    first = {name: _GROUPS / name for name in ("memory", "pids", "cpuacct")}
    second = dict.fromkeys(("memory", "pids", "cpu"), _GROUPS)
    kinds: tuple[cgroups.Groups, ...] = (_GivenV1(first), _GivenV2(second))
    for made in kinds:
        with contextlib.suppress(OSError, ValueError):
            made.begin()
            return made
    return cgroups.Groups({})


class GivenPlace(work_folder.MemoryPlace):
    """A sized file system in memory that came with the container, for one script."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._limit = self.used_bytes = 0

    def make(self, limits: Limits, uid: int | None, script: bytes, inputs: bytes) -> None:
        """Nothing to do: it is there, and empty."""
        self._limit, self.used_bytes = self.room(limits, script, inputs), 0
        work_folder.fill(self.path, uid, script, inputs)

    def clear(self) -> None:
        """Nothing to do: it goes with the container."""


class Inside(Keeper):
    """A keeper for one script."""

    def _make_groups(self) -> cgroups.Groups:
        return given_groups()

    def _memory_place(self) -> work_folder.MemoryPlace | None:
        return GivenPlace(self.plan.root)

    def _watch(self, run: Run) -> None:
        if time.monotonic() - run.began > run.limits.cap_ms / 1000 + LATE_S:
            self._kill()
        super()._watch(run)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # all but this one, at once


def main(root: str, *, in_memory: bool) -> None:
    """Serve one script. ``in_memory``: ``root`` is a sized file system in memory, else a folder is made below it."""
    # The kernel's log of audits goes by the user who logged in. Who has none may name one, once: here, not in a script.
    with contextlib.suppress(OSError):
        Path("/proc/self/loginuid").write_text(str(os.getuid()))
    _libc().prctl(*_NOT_DUMPABLE, 0, 0, 0)
    if os.getpid() != 1:
        sys.exit("the keeper must be the first process of its process namespace")
    Inside(Plan(level=Level.CONTAINER, root=root, memory_place=in_memory), StdioChannel()).serve()
