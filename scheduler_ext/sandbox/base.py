"""What a sandbox is asked for and what it answers, the same at every level."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """A way of containing a script, weakest first."""

    PROCESS = "process"
    """A process tree with resource limits: for trusted tenants only."""
    LANDLOCK = "landlock"
    """Landlock, a system-call filter and resource limits; needs no namespaces."""
    BUBBLEWRAP = "bubblewrap"
    """Namespaces of its own, a system-call filter and resource limits."""
    CONTAINER = "container"
    """A container of its own (a virtual machine, where its runtime is one), started by a runner."""

    @property
    def contains_untrusted(self) -> bool:
        """Whether it may run scripts of tenants nobody vouches for."""
        return self is not Level.PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run may use: its tier's limits, and the settings' for what no tier limits."""

    cpu_milli: int
    memory_mb: int
    disk_mb: int
    cap_ms: int
    processes: int = 256
    """Processes and threads at once."""
    files: int = 20_000
    """Files and folders in the work folder."""
    result_bytes: int = 262_144
    artifact_bytes: int = 16_777_216
    """Of the files in its folder of artifacts, together."""
    tmpfs_mb: int = 256
    """Work folders up to this size lie in memory, larger ones on disk."""
    network: bool = False
    iops: int = 0
    """Operations a second on the disk, reading and writing; 0: unlimited."""
    bandwidth_kbps: int = 0
    """Network bandwidth, in and out each; 0: unlimited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saves:
    """The checkpoints of a script that saves them: where it resumes, and where they go."""

    keep: Callable[[bytes], Awaitable[None]]
    """Called each time the published files of ``CHECKPOINT_DIR`` have changed."""
    refuse: Callable[[str], Awaitable[None]]
    """Called with the reason why they were refused, once per reason."""
    content: bytes | None = None
    """What it finds in ``CHECKPOINT_DIR``: the last one kept."""
    every_s: float = 2.0
    most_bytes: int = 16_777_216


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A script to run, with its whole environment and its inputs."""

    script: bytes
    inputs: bytes
    env: Mapping[str, str]
    """The environment, to which the sandbox adds HOME, TMPDIR, SLACKWATER_INPUTS, SLACKWATER_RESULT and
    SLACKWATER_ARTIFACTS.
    """
    limits: Limits
    saves: Saves | None = None
    """Set for a script that saves checkpoints: it then finds CHECKPOINT_DIR in its environment too."""
    lease_s: float | None = None
    """The length of the node's lease: the script ends when it is forsaken (see :func:`is_forsaken`)."""
    lease_until: float = 0.0
    """Until when (monotonic) the lease holds, as known when the script is handed over."""


def is_forsaken(now: float, *, until: float, heard: float, lease_s: float) -> bool:
    """Whether work may run elsewhere by now while its agent, being stopped or dead, cannot say so.

    ``until``: how long its node's lease held when the agent was last ``heard``. While the agent lives and only the
    database is away, work goes on: that is what its silence is asked for.
    """
    return now > until and now - heard > lease_s / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended. When it is returned, nothing of the run is left."""

    code: int
    """The exit code; minus the number of the signal that ended it."""
    exceeded: str = ""
    """The limit it exceeded: memory, disk, processes; or ``lease``. Empty: none."""
    result: bytes | None = None
    """What it left in its result file."""
    artifacts: bytes | None = None
    """The contents of its folder of artifacts, packed; ``None`` if it is empty."""
    fault: str = ""
    """Why the result file, or the run, cannot be used."""
    cpu_ms: int = 0
    peak_mb: int = 0
    disk_mb: int = 0
    """The most its work folder held at any look, in MiB, rounded up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of trying a level on this machine."""

    level: Level
    works: bool
    why: str = ""
    """Why it does not work, if it does not."""
    groups: str = ""
    """The kind of control groups in use: v1, v2, or empty."""
    own_uid: bool = False
    """Whether each slot runs as a user of its own."""
    work_in_memory: bool = False
    """Whether work folders are sized file systems in memory."""
    iops: bool = False
    """Whether scripts are held to their tier's operations a second."""
    bandwidth: bool = False
    """Whether scripts are held to their tier's bandwidth."""

    @property
    def enforced(self) -> tuple[str, ...]:
        """The limits of a tier that are enforced on a script here."""
        held = {
            "cpu": bool(self.groups), "memory": True, "disk": True, "iops": self.iops, "bandwidth": self.bandwidth,
        }  # fmt: skip
        return tuple(name for name, so in held.items() if so)


class Refused(Exception):
    """The script may not run here; the message says why."""


class SlotError(Exception):
    """A sandbox could not be started, or ended while a script ran; the message says why."""
