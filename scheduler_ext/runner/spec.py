"""What a container is created with, and what a worker may ask for. Pure: nothing here performs I/O."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Final

from scheduler_ext import sandbox
from scheduler_ext.runner.options import Options
from scheduler_ext.sandbox import frames
from scheduler_ext.sandbox.base import Limits
from scheduler_ext.sandbox.keeper import cgroups, checkpoint_folder, work_folder

WORK: Final = "/task"
MIB: Final = 1024 * 1024
RUNNER_LABEL: Final = "slackwater.runner"
NODE_LABEL: Final = "slackwater.node"
OWN_MB: Final = 48
"""Memory for the keeper inside and what the kernel keeps for a container."""
SHM_MB: Final = 64
ROOM: Final = MIB
"""Room for a script and its inputs beside its disk; larger ones need a container made for them."""
PERIOD_US: Final = 100_000
MAX_SAVED: Final = frames.MAX_CONTENT
MAX_SECONDS: Final = 366 * 86_400
MAX_FAULT: Final = 1_000
EXCEEDED: Final = frozenset({"", "memory", "disk", "processes"})
# What the keeper inside is made of, as the runner itself has it.
MODULES: Final = (
    "base", "bubblewrap", "frames", "landlock", "seccomp", "keeper.privileges", "keeper.channels", "keeper.cgroups",
    "keeper.container_init", "keeper.keeper", "keeper.work_folder", "keeper.io_limits", "keeper.checkpoint_folder",
    "keeper.checkpoint_sender", "keeper.prefork", "keeper.process_tree",
)  # fmt: skip
# Takes one frame from standard input: the code and where to work. No file of the image but Python is needed.
BOOT: Final = """
import sys
if sys.version_info < (3, 11):
    sys.exit("the image's Python is %d.%d, 3.11 or newer is needed" % sys.version_info[:2])
import json, os, struct
from importlib.machinery import ModuleSpec
def take(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            os._exit(0)
        data += more
    return data
text, content = struct.unpack(">II", take(8))
told = json.loads(take(text))
take(content)
code = told["modules"]
class Sent:
    def find_spec(self, name, path=None, target=None):
        if name in code:
            return ModuleSpec(name, self, is_package=code[name] is None)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(compile(code[module.__name__] or "", "<" + module.__name__ + ">", "exec"), module.__dict__)
sys.meta_path.insert(0, Sent())
from scheduler_ext.sandbox.keeper import container_init
container_init.main(told["root"], in_memory=told["in_memory"])
"""


class NotAllowed(Exception):
    """A worker asked for something this runner does not do; the message says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is fixed when a container is created; equal for all scripts of one tier."""

    cpu_milli: int
    memory_mb: int
    processes: int
    files: int
    disk_bytes: int
    """The size of its work folder, including the inputs."""
    in_memory: bool
    """Whether its work folder is a sized file system in memory; else a volume on the engine's disk."""
    network: bool

    @property
    def root(self) -> str:
        """The folder in which the keeper inside works."""
        return WORK if self.in_memory else f"{WORK}/work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A worker's order, checked."""

    limits: Limits
    message: Mapping[str, Any]
    """The order for the keeper inside."""
    content: bytes
    shape: Shape
    most_saved: int
    name: str
    lease_s: float
    """The length of the worker's lease, which it renews meanwhile; 0: it says nothing of a lease."""
    left_s: float
    """For how long the lease still holds."""


def wanted(message: Mapping[str, Any], content: bytes, options: Options) -> Wanted:
    """Check an order; ``NotAllowed`` names what is wrong with it."""
    limits = _limits(message.get("limits"), options)
    env = message.get("env")
    if not isinstance(env, dict) or not all(isinstance(text, str) for pair in env.items() for text in pair):
        raise NotAllowed("env: it must be a mapping of texts")
    if any("=" in name or "\0" in name + value for name, value in env.items()):
        raise NotAllowed("env: a name has an equals sign, or something a zero byte")
    saves, parts = message.get("saves"), message.get("parts")
    if not isinstance(parts, list) or len(parts) != (2 if saves is None else 3):
        raise NotAllowed("parts: a script, its inputs and, where it saves, its checkpoint must come")
    try:
        script, inputs, *_ = frames.split(content, parts)
    except frames.FrameError as error:
        raise NotAllowed(f"parts: {error}") from error
    told: dict[str, Any] = {"do": "run", "limits": message["limits"], "env": env, "parts": parts}
    if saves is not None:
        told["saves"] = _saves(saves)
    most_saved = told["saves"]["most_bytes"] if saves is not None else 0
    return Wanted(
        limits=limits, message=told, content=content, shape=shape(limits, len(script) + len(inputs)),
        most_saved=most_saved,
        name=re.sub(r"[^a-zA-Z0-9_.-]", "-", env.get("SLACKWATER_RUN", ""))[:80],
        lease_s=seconds(message.get("lease_s"), "lease_s"), left_s=seconds(message.get("left_s"), "left_s"),
    )  # fmt: skip


def seconds(given: Any, name: str) -> float:
    """Read a duration from a message, 0 where it is left out; ``NotAllowed`` names one that is invalid."""
    if given is None:
        return 0.0
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not -MAX_SECONDS <= given <= MAX_SECONDS:
        raise NotAllowed(f"{name}: it must be a number of seconds")
    return float(given)


def _limits(given: Any, options: Options) -> Limits:
    if not isinstance(given, dict) or set(given) != {field.name for field in fields(Limits)}:
        raise NotAllowed("limits: they are not those of this version")
    for name, value in given.items():
        if isinstance(value, bool) != (name == "network") or not isinstance(value, int) or value < 0:
            raise NotAllowed(f"limits: {name} must be a number, not negative")
    limits = Limits(**given)
    ceilings = {
        "memory_mb": options.most_memory_mb, "cpu_milli": options.most_cpu_milli, "disk_mb": options.most_disk_mb,
        "processes": options.most_processes, "files": 10_000_000, "cap_ms": 366 * 86_400_000,
        "iops": 1 << 31, "bandwidth_kbps": 1 << 31,
        "result_bytes": frames.MAX_CONTENT, "artifact_bytes": frames.MAX_CONTENT, "tmpfs_mb": options.most_memory_mb,
    }  # fmt: skip
    for name, most in ceilings.items():
        if getattr(limits, name) > most:
            raise NotAllowed(f"limits: {name} is {getattr(limits, name)}, this runner grants at most {most}")
    if limits.network and not options.network:
        raise NotAllowed("limits: this runner has no network to give (--network)")
    return limits


def _saves(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict) or set(given) != {"every_s", "most_bytes"}:
        raise NotAllowed("saves: they are not those of this version")
    every, most = given["every_s"], given["most_bytes"]
    if isinstance(every, bool) or not isinstance(every, (int, float)) or not 0.01 <= every <= 86_400:
        raise NotAllowed("saves: every_s must be from 0.01 to 86400")
    if isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= MAX_SAVED:
        raise NotAllowed(f"saves: most_bytes must be from 0 to {MAX_SAVED}")
    return given


def shape(limits: Limits, found_bytes: int = 0) -> Shape:
    """The shape for these limits and so many bytes of script and inputs."""
    disk = work_folder.disk_bytes(limits)
    room = ROOM * (1 + (found_bytes + 65_536) // ROOM)
    return Shape(
        cpu_milli=max(10, limits.cpu_milli), memory_mb=max(limits.memory_mb, 8), processes=max(limits.processes, 1),
        files=limits.files, disk_bytes=disk + room, in_memory=disk <= limits.tmpfs_mb * MIB, network=limits.network,
    )  # fmt: skip


def container(
    shape: Shape, options: Options, image: str, uid: int, labels: Mapping[str, str], *, v2: bool
) -> dict[str, Any]:
    """The engine's description of a container. ``v2``: the engine's control groups are of version 2."""
    memory = shape.memory_mb + OWN_MB + (math.ceil(shape.disk_bytes / MIB) if shape.in_memory else 0)
    host: dict[str, Any] = {
        "ReadonlyRootfs": True, "CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"], "Privileged": False,
        "NetworkMode": options.network if shape.network else "none", "IpcMode": "private", "PidMode": "",
        "Memory": memory * MIB, "MemorySwap": memory * MIB, "OomScoreAdj": 200,
        "CpuPeriod": PERIOD_US, "CpuQuota": max(1_000, shape.cpu_milli * PERIOD_US // 1000),
        "PidsLimit": shape.processes + cgroups.SPARE_PROCESSES, "ShmSize": SHM_MB * MIB,
        "LogConfig": {"Type": "none"}, "RestartPolicy": {"Name": "no"}, "Init": False,
        "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}, {"Name": "nofile", "Soft": 1024, "Hard": 1024}],
    }  # fmt: skip
    if v2:
        host["CgroupnsMode"] = "private"
    if shape.in_memory:
        options_of_it = f"rw,exec,nosuid,nodev,mode=0700,uid={uid},gid={uid},size={shape.disk_bytes + MIB}"
        host["Tmpfs"] = {WORK: f"{options_of_it},nr_inodes={shape.files + 8}"}
    else:
        host["Mounts"] = [{"Type": "volume", "Target": WORK}]
    if options.runtime:
        host["Runtime"] = options.runtime
    return {
        "Image": image, "Entrypoint": ["python3", "-I", "-S", "-c", BOOT], "Cmd": [], "User": f"{uid}:{uid}",
        "WorkingDir": "/", "Hostname": "sandbox", "Labels": dict(labels), "Tty": False, "OpenStdin": True,
        "StdinOnce": True, "AttachStdin": True, "AttachStdout": True, "AttachStderr": True,
        "NetworkDisabled": not shape.network, "Healthcheck": {"Test": ["NONE"]}, "HostConfig": host,
    }  # fmt: skip


@cache
def code() -> dict[str, str | None]:
    """The code of the keeper inside, by module name; packages are ``None``."""
    folder = Path(sandbox.__file__).parent
    text = {name: folder.joinpath(*name.split(".")).with_suffix(".py").read_text() for name in MODULES}
    packages = ("scheduler_ext", "scheduler_ext.sandbox", "scheduler_ext.sandbox.keeper")
    return {**dict.fromkeys(packages), **{f"scheduler_ext.sandbox.{name}": code for name, code in text.items()}}


def first_frame(shape: Shape) -> bytes:
    text = json.dumps({"modules": code(), "root": shape.root, "in_memory": shape.in_memory}).encode()
    return len(text).to_bytes(4, "big") + bytes(4) + text


def answer(message: Mapping[str, Any], content: bytes, order: Wanted) -> dict[str, Any]:
    """Check what the keeper inside says before it is passed on; ``FrameError`` for anything it cannot rightly say.

    It ran beside a script nobody vouches for: it is believed no further than it must be.
    """
    for name in ("out", "err"):
        if name in message:
            return {name: len(content)}
    if "saved" in message:
        _sound(content, order.most_saved)
        return {"saved": len(content)}
    if "unsaved" in message:
        return {"unsaved": str(message["unsaved"])[:MAX_FAULT]}
    if "artifacts" in message:
        _sound(content, order.limits.artifact_bytes)
        return {"artifacts": True}
    return _end(message, content, order)


def _sound(content: bytes, most: int) -> None:
    try:
        checkpoint_folder.check(content)
    except ValueError as error:
        raise frames.FrameError(f"it packed no files: {error}") from error
    if len(content) > most:
        raise frames.FrameError(f"it packed {len(content)} bytes, at most {most} are taken")


def _end(message: Mapping[str, Any], content: bytes, order: Wanted) -> dict[str, Any]:
    code, exceeded = message.get("code"), message.get("exceeded", "")
    if not isinstance(code, int) or not -64 <= code <= 255 or exceeded not in EXCEEDED:
        raise frames.FrameError("it told an end that there is not")
    if len(content) > order.limits.result_bytes:
        raise frames.FrameError(f"it told a result of {len(content)} bytes")
    figures = {name: message.get(name, 0) for name in ("cpu_ms", "peak_mb", "disk_mb")}
    if any(not isinstance(figure, int) or not 0 <= figure < 1 << 50 for figure in figures.values()):
        raise frames.FrameError("it told figures that are none")
    return {
        "code": code, "exceeded": exceeded, "fault": str(message.get("fault", ""))[:MAX_FAULT],
        "result": bool(message.get("result")), **figures,
    }  # fmt: skip
