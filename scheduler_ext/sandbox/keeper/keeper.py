"""The keeper: one small process for each slot, which starts one script at a time, watches it and ends all of it.

Started by :mod:`scheduler_ext.sandbox.slot` as ``python -m scheduler_ext.sandbox.keeper.keeper PLAN FD``. It is single-
threaded (so it may fork), the parent of all orphans a script leaves (so nothing escapes it), and ends with its agent.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scheduler_ext.sandbox import bubblewrap, seccomp
from scheduler_ext.sandbox.base import Level, Limits, is_forsaken
from scheduler_ext.sandbox.keeper import cgroups, checkpoint_folder, prefork, process_tree, work_folder
from scheduler_ext.sandbox.keeper.channels import Channel, SocketChannel
from scheduler_ext.sandbox.keeper.checkpoint_sender import Saver
from scheduler_ext.sandbox.keeper.privileges import rlimits, take_uid
from scheduler_ext.sandbox.landlock import _libc

WATCH_S = 0.025
WATCH_SLOWLY_S = 0.1
PACE_S = 0.01
"""Seconds between two measurements of a script that works on a disk."""
MIB = 1024 * 1024
_SUBREAPER = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a keeper is started with."""

    level: str
    root: str
    """Its folder; others may pass through it but not list it."""
    bwrap: str = ""
    uid_base: int = 0
    """The first of the user ids a slot may take when the agent is root; 0: keep the present user."""
    groups: bool = True
    """Whether to use control groups where possible."""
    memory_place: bool = True
    """Whether to use sized file systems in memory where possible."""


@dataclass(slots=True)
class Run:
    """The script that runs."""

    limits: Limits
    place: work_folder.Place
    pid: int
    began: float = field(default_factory=time.monotonic)
    looked: float = 0.0
    code: int = 0
    cpu_s: float = 0.0
    seen_cpu_s: float = 0.0
    peak_mb: int = 0
    exceeded: str = ""
    saver: Saver | None = None
    lease_s: float | None = None
    heard: float = 0.0
    """When its agent last said that it lives."""
    until: float = 0.0
    """Until when, as far as the agent has said, the node's lease holds."""

    def is_forsaken(self) -> bool:
        """Whether the script may run elsewhere by now while its agent, being stopped, cannot say so."""
        return self.lease_s is not None and is_forsaken(
            time.monotonic(), until=self.until, heard=self.heard, lease_s=self.lease_s
        )


class Keeper:
    """One slot: its channel, its groups, its folder and the script in it."""

    def __init__(self, plan: Plan, control: Channel) -> None:
        self.plan = plan
        self.level = Level(plan.level)
        self.control = control
        self.lock: int
        self.uid: int | None
        self.lock, self.uid = take_uid(plan.uid_base) if os.getuid() == 0 and plan.uid_base else (-1, None)
        if self.uid is not None:
            process_tree.kill_user(self.uid)  # what a keeper that was killed itself may have left
        self.groups = self._make_groups()
        self.folder = work_folder.FolderPlace(plan.root)
        self.memory = self._memory_place() if plan.memory_place and self.level.contains_untrusted else None
        self.system = bubblewrap.system_mounts()
        self.filters = {network: self._filter(network) for network in (False, True)}
        self.waiting: tuple[int, socket.socket] | None = None
        self.run: Run | None = None
        self.own_kb = 0

    def _make_groups(self) -> cgroups.Groups:
        return cgroups.make(self.plan.root, self.plan.groups)

    def _memory_place(self) -> work_folder.MemoryPlace | None:
        with contextlib.suppress(OSError):
            return work_folder.MemoryPlace(self.plan.root)
        return None

    def _filter(self, network: bool) -> int:
        handle = os.memfd_create(f"filter-{network}")
        os.write(handle, seccomp.program(network=network, strict=False, counted=bool(self.groups.kind)))
        return handle

    def serve(self) -> None:
        """Serve until the agent is gone."""
        _libc().prctl(_SUBREAPER, 1, 0, 0, 0)
        wake, woken = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        self.control.listen(selector)
        selector.register(wake, selectors.EVENT_READ, lambda: _drain(wake))
        self._prepare()
        self.control.tell({
            "uid": self.uid, "groups": self.groups.kind, "memory": self.memory is not None,
            "iops": self.groups.disk is not None, "bandwidth": self.groups.network is not None,
        })  # fmt: skip
        try:
            while True:
                heard = False
                for key, _ in selector.select(None if self.run is None else self._next(self.run)):
                    if key.data is None:
                        heard = True
                    else:
                        key.data()
                if heard and not all(self._follow(*each) for each in self.control.receive()):
                    return
                if self.run is not None:
                    # Not while messages may wait: one of them may say that the agent lives.
                    if not heard and time.monotonic() >= self._due(self.run):
                        self._watch(self.run)
                    self._reap(self.run)
        finally:
            self._close()

    def _next(self, run: Run) -> float:
        """Enforce the script's rate; returns the seconds until that, or the next measurement, is due."""
        self.groups.look()
        pause = max(0.0, self._due(run) - time.monotonic())
        return min(pause, PACE_S) if run.place is self.folder and self.groups.disk is not None else pause

    def _due(self, run: Run) -> float:
        """When to measure next: measuring a folder takes longer than asking a file system."""
        return run.looked + (WATCH_SLOWLY_S if run.place is self.folder else WATCH_S)

    def _follow(self, message: dict[str, Any] | None, fds: list[int]) -> bool:
        """Handle one message; False when the agent is gone."""
        if message is None:
            return False
        try:
            if message["do"] == "run":
                self._start(message, fds)
            elif self.run is not None:
                self._heed(self.run, message)
        except (OSError, ValueError, LookupError) as error:
            self._end_all()
            self._clear()
            self.control.tell({"code": -1, "fault": f"the script could not be started: {error}"})
        finally:
            for handle in fds:
                os.close(handle)
        return True

    def _heed(self, run: Run, message: dict[str, Any]) -> None:
        """Handle one message about the script that runs."""
        if message["do"] == "beat":
            run.heard, run.until = message["at"], message["until"]
        elif message["do"] == "kept":
            if run.saver is not None:
                run.saver.told = False
        elif message["do"] == "stop":
            self._stop(run)
        else:
            self._kill()

    # -- the start ----------------------------------------------------------------------------------------------------
    def _prepare(self) -> None:
        """Fork the process that will become the next script."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        self.own_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + 1024
        pid = os.fork()
        if pid == 0:
            ours.close()
            signal.set_wakeup_fd(-1)
            prefork.wait_and_become(theirs, self.level, self.uid, self.groups, parent)
        theirs.close()
        self.waiting = pid, ours

    def _start(self, message: dict[str, Any], fds: list[int]) -> None:
        out, err, script, inputs, *before = fds
        limits = Limits(**message["limits"])
        small = work_folder.disk_bytes(limits) <= limits.tmpfs_mb * MIB
        place: work_folder.Place = self.memory if self.memory is not None and small else self.folder
        place.make(limits, self.uid, _content(script), _content(inputs))
        try:
            saver = None
            if before:
                saver = Saver(place.path, self.uid, **message["saves"])
                saver.restore(_content(before[0]))
            in_memory = work_folder.disk_bytes(limits) // MIB if place is self.memory else 0
            self.groups.limit(limits, limits.memory_mb + in_memory)
            self.groups.pace(limits, apart=self.level.contains_untrusted)
            self.groups.begin()
            assert self.waiting is not None
            pid, channel = self.waiting
            self.waiting = None
            self.run = Run(
                limits, place, pid, saver=saver, lease_s=message.get("lease_s"), heard=message.get("at", 0.0),
                until=message.get("until", 0.0),
            )  # fmt: skip
            env = dict(message["env"])
            if saver is not None:
                seen = bubblewrap.WORK if self.level is Level.BUBBLEWRAP else place.path
                env["CHECKPOINT_DIR"] = f"{seen}/{checkpoint_folder.FOLDER}"
            prefork.tell(channel, asdict(self._described(limits, place.path, env)), [out, err])
            channel.close()
        except BaseException:
            place.clear()
            raise

    def _described(self, limits: Limits, work: str, given: dict[str, str]) -> prefork.Start:
        boxed = self.level is Level.BUBBLEWRAP
        seen = bubblewrap.WORK if boxed else work
        env = {
            **given, "HOME": seen, "TMPDIR": seen, "SLACKWATER_INPUTS": f"{seen}/inputs.json",
            "SLACKWATER_RESULT": f"{seen}/{work_folder.RESULT}", "SLACKWATER_ARTIFACTS": f"{seen}/{work_folder.ARTIFACTS}",
        }  # fmt: skip
        options: list[str] = []
        argv = [f"{work}/script"]
        if boxed:
            inside = None if self.uid is not None else limits.processes + cgroups.SPARE_PROCESSES
            options, argv = bubblewrap.arguments(
                self.plan.bwrap, self.system, work, env, self.filters[limits.network], network=limits.network,
                processes=inside,
            )  # fmt: skip
        counted = bool(self.groups.kind)
        return prefork.Start(
            argv=argv, options=options, env=env, cwd=work, rlimits=rlimits(self.level, limits, self.uid, counted=counted),
            network=limits.network, counted=counted, seccomp_fd=self.filters[limits.network],
        )  # fmt: skip

    # -- the watch ----------------------------------------------------------------------------------------------------
    def _watch(self, run: Run) -> None:
        """Measure, and kill what uses more than it may."""
        run.looked = time.monotonic()
        held = self.groups.memory_mb()
        if held is None:
            pids = process_tree.below(os.getpid())
            held = process_tree.memory_mb(pids, run.limits.memory_mb)
            run.seen_cpu_s = max(run.seen_cpu_s, process_tree.cpu_s(pids))
            if self.level.contains_untrusted and process_tree.threads(pids) >= run.limits.processes:
                run.exceeded = run.exceeded or "processes"
        run.peak_mb = max(run.peak_mb, held)
        if not run.exceeded and held > run.limits.memory_mb:
            run.exceeded = "memory"
        run.exceeded = run.exceeded or self.groups.exceeded() or ("disk" if run.place.full() else "")
        run.exceeded = run.exceeded or ("lease" if run.is_forsaken() else "")
        if run.exceeded:
            self._kill()
        elif run.saver is not None:
            run.saver.look(self.control)

    def _stop(self, run: Run) -> None:
        """Ask the script to end."""
        self.groups.pace(run.limits, apart=self.level.contains_untrusted)  # anew: what is frozen does not hear it
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.level is not Level.BUBBLEWRAP:
                os.killpg(run.pid, signal.SIGTERM)
                return
            inside = [pid for pid in process_tree.children(run.pid) if os.getpgid(pid) == pid]
            if not inside:
                os.kill(run.pid, signal.SIGKILL)
            for pid in inside:
                os.killpg(pid, signal.SIGTERM)

    def _kill(self) -> None:
        self.groups.lift()
        process_tree.kill(process_tree.below(os.getpid()))
        if self.uid is not None:
            process_tree.kill_user(self.uid)

    def _reap(self, run: Run) -> None:
        """Collect what has ended; when the script itself has, end what it left and report."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                return
            run.cpu_s += used.ru_utime + used.ru_stime
            if used.ru_maxrss > self.own_kb:  # less is what the process held before it became the script
                run.peak_mb = max(run.peak_mb, used.ru_maxrss >> 10)
            if pid == run.pid:
                self._watch(run)  # what it ran into at its end was not looked at yet
                run.code = os.waitstatus_to_exitcode(status)
                self._end(run)
                return

    def _end_all(self) -> float:
        """Kill everything below and wait until it is gone; returns the CPU seconds it had spent."""
        spent = 0.0
        self.waiting = None
        while True:
            self._kill()
            try:
                _, _, used = os.wait4(-1, 0)
            except ChildProcessError:
                return spent
            spent += used.ru_utime + used.ru_stime

    def _end(self, run: Run) -> None:
        run.cpu_s += self._end_all()
        full = run.place.full()  # measured once more in any case: a short script ends between two looks
        if run.code != 0 and not run.exceeded:
            run.exceeded = self.groups.exceeded() or ("disk" if full else "")
        if run.saver is not None:
            run.saver.look(self.control, last=True)
        artifacts, unkept = work_folder.read_artifacts(run.place.path, self.uid, run.limits.artifact_bytes)
        result, fault = work_folder.read_result(run.place.path, run.limits.result_bytes)
        if artifacts is not None:
            self.control.tell({"artifacts": True}, artifacts)
        self._tell(run, result, fault or unkept)
        self._clear()

    def _tell(self, run: Run, result: bytes | None, fault: str) -> None:
        code = run.code
        if self.level is Level.BUBBLEWRAP and code > 128:
            code = 128 - code  # bubblewrap reports the signal that ended the script as a shell does
        message = {
            "code": code, "exceeded": run.exceeded, "fault": fault, "peak_mb": run.peak_mb,
            "disk_mb": -(-run.place.used_bytes // MIB),
            "cpu_ms": round(1000 * (self.groups.cpu_s() or max(run.cpu_s, run.seen_cpu_s))),
        }  # fmt: skip
        self.control.tell(message, result)

    def _clear(self) -> None:
        """Prepare the slot for the next script."""
        run, self.run = self.run, None
        if run is not None:
            run.place.clear()
            self.groups.after()
        if self.waiting is None:
            self._prepare()

    def _close(self) -> None:
        self._end_all()
        if self.run is not None:
            self.run.place.clear()
        self.folder.clear()
        self.groups.remove()


def _drain(wake: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(wake, 4096)


def _content(handle: int) -> bytes:
    return os.pread(handle, os.fstat(handle).st_size, 0)


def main(argv: list[str]) -> None:
    control = socket.socket(fileno=int(argv[2]))
    control.set_inheritable(False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the agent decides; its end is this process's end
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("-500")  # its scripts go first
    try:
        keeper = Keeper(Plan(**json.loads(argv[1])), SocketChannel(control))
        gc.freeze()
        keeper.serve()
    except (OSError, LookupError) as error:
        with contextlib.suppress(OSError):
            prefork.tell(control, {"error": str(error)})
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv)
