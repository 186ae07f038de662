"""Rate limits of a slot: operations a second on the disk of its work folder, and bits a second over the network.

Both go by control groups and are best effort: where the kernel or this process' rights do not allow one, making it
raises ``OSError``, and the node says that it is not enforced. Both keep one number, the time until which what was done
would have taken at the rate (ITU-T I.371, "virtual scheduling"), and act when it lies too far ahead.

The disk's operations are counted by the kernel, and the whole group is frozen while it is ahead. The kernel's own
limits (``blkio.throttle``, ``io.max``) are not used: who waits for one in the middle of a call cannot be ended, and
may hold what others wait for, such as a transaction of the file system.

The network's is a program for the kernel's virtual machine at the group's ingress and egress. What comes too early is
dropped, and TCP slows down as on a slow link; the kernel's example ``samples/bpf/hbm.c`` does it the same way. Packets
of several processors at the same instant may pass for one: under load the rate is passed by a few per cent.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from pathlib import Path
from typing import Final

BURST_S: Final = 2.0
"""Each script may be this far ahead of its disk: to start a program that nobody has started lately takes some
hundred reads."""
BURST_NS: Final = 200_000_000
"""TCP sends in bursts of 64 KiB: with less room than this for them it does not come near its rate."""
_CALL: Final = {"x86_64": 321, "aarch64": 280}
_MAP_CREATE, _MAP_UPDATE, _PROG_LOAD, _PROG_ATTACH = 0, 2, 5, 8
_ARRAY: Final = 2
_CGROUP_SKB: Final = 8
_INGRESS, _EGRESS = 0, 1
_ALLOW_MULTI: Final = 2
_PASS: Final = 1
_DROP: Final = {_INGRESS: 0, _EGRESS: 2}
"""On its way out 2 lets the sender know of congestion; 0 would fail its call."""
_LICENCE: Final = b"BSD"


def device_of(path: str) -> str:
    """``major:minor`` of the disk a path lies on; ``OSError`` where that is no disk (a file system in memory)."""
    number = os.stat(path).st_dev  # noqa: PTH116
    if not os.major(number):
        raise OSError(f"{path} lies on no disk of its own")
    known = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve(strict=True)
    whole = known.parent if (known / "partition").exists() else known
    return (whole / "dev").read_text().strip()


class DiskRate:
    """Operations a second on one disk, of a group that is frozen while it is ahead of its rate."""

    def __init__(self, count: Path, freeze: Path, device: str) -> None:
        """``count`` tells the operations (``io.stat``, or version 1's), ``freeze`` stops (``cgroup.freeze``)."""
        self._count, self._freeze, self._device = count, freeze, device
        self._iops = self._seen = 0
        self._until = 0.0
        self._frozen = True
        self._operations()
        self.lift()

    def limit(self, iops: int) -> None:
        """Hold to that many from now on; 0: to none."""
        self.lift()
        self._iops = iops
        if iops:
            self._seen, self._until = self._operations(), time.monotonic()

    def lift(self) -> None:
        """Hold to none, and let what is frozen go on: only then does it end."""
        self._iops = 0
        self._set(frozen=False)

    def look(self) -> None:
        """Count, and freeze or thaw. To be called often: what is done between two looks is done."""
        if not self._iops:
            return
        now, done = time.monotonic(), self._operations()
        self._until = max(self._until, now) + (done - self._seen) / self._iops
        self._seen = done
        if self._until - now > BURST_S:
            self._set(frozen=True)
        elif self._until - now < BURST_S / 2:
            self._set(frozen=False)

    def _set(self, *, frozen: bool) -> None:
        if frozen != self._frozen:
            self._freeze.write_text(str(int(frozen)))
            self._frozen = frozen

    def _operations(self) -> int:
        """Version 1 has a line for each kind, version 2 one with ``rios=`` and ``wios=``."""
        done = 0
        for line in self._count.read_text().splitlines():
            device, _, rest = line.partition(" ")
            if device == self._device:
                for word in rest.split():
                    name, _, value = word.partition("=")
                    done += int(value) if name in {"rios", "wios"} else 0
                if rest.startswith("Total "):
                    done += int(rest[6:])
        return done


class NetworkRate:
    """Bits a second, in and out each, of the processes in a group of version 2 (the loopback's too)."""

    def __init__(self, folder: Path) -> None:
        group = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._maps = [self._attached(group, way) for way in (_INGRESS, _EGRESS)]
        finally:
            os.close(group)
        self.limit(0)

    def limit(self, kbps: int) -> None:
        """Hold to that many kbit/s; 0: to none."""
        value = struct.pack("<QQQ", 0, 1024 * 8 * 1_000_000 // kbps if kbps else 0, BURST_NS)
        for handle in self._maps:
            key, held = ctypes.create_string_buffer(4), ctypes.create_string_buffer(value, len(value))
            _bpf(_MAP_UPDATE, "<IxxxxQQQ", handle, ctypes.addressof(key), ctypes.addressof(held), 0)

    @staticmethod
    def _attached(group: int, way: int) -> int:
        """The map of a program that is attached; with the group the program goes, with that the map."""
        table = _bpf(_MAP_CREATE, "<IIIII", _ARRAY, 4, 24, 1, 0)
        code = _program(table, _DROP[way])
        held, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(_LICENCE)
        program = _bpf(
            _PROG_LOAD, "<IIQQIIQII16sII", _CGROUP_SKB, len(code) // 8, ctypes.addressof(held),
            ctypes.addressof(licence), 0, 0, 0, 0, 0, b"", 0, way,
        )  # fmt: skip
        try:
            _bpf(_PROG_ATTACH, "<IIII", group, program, way, _ALLOW_MULTI)
        finally:
            os.close(program)
        return table


def _bpf(command: int, layout: str, *values: int | bytes) -> int:
    number = _CALL.get(os.uname().machine)
    if number is None:
        raise OSError("the system call bpf is not known for this machine")
    attributes = struct.pack(layout, *values)
    held = ctypes.create_string_buffer(attributes, len(attributes))
    result = ctypes.CDLL(None, use_errno=True).syscall(number, command, held, len(attributes))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(result)


def _program(table: int, drop: int) -> bytes:
    """The instructions. The map's one value is (until when, ns for a KiB, ns of burst), eight bytes each."""
    lines = (
        (0x61, 6, 1, 0, 0),         # r6 = the packet's length
        (0x62, 10, 0, -4, 0),       # the key: 0
        (0xBF, 2, 10, 0, 0),
        (0x07, 2, 0, 0, -4),
        (0x18, 1, 1, 0, table),     # r1 = the map
        (0x00, 0, 0, 0, 0),
        (0x85, 0, 0, 0, 1),         # r0 = bpf_map_lookup_elem(r1, r2)
        (0x15, 0, 0, 14, 0),        # none: pass
        (0xBF, 7, 0, 0, 0),
        (0x79, 1, 7, 8, 0),         # r1 = ns for a KiB
        (0x15, 1, 0, 11, 0),        # no limit: pass
        (0x2F, 6, 1, 0, 0),
        (0x77, 6, 0, 0, 10),        # r6 = what the packet takes, ns
        (0x85, 0, 0, 0, 5),         # r0 = bpf_ktime_get_ns()
        (0x79, 2, 7, 0, 0),         # r2 = until when
        (0x79, 3, 7, 16, 0),
        (0x0F, 3, 0, 0, 0),         # r3 = now and the burst
        (0x2D, 2, 3, 6, 0),         # until when > that: drop
        (0x3D, 2, 0, 1, 0),
        (0xBF, 2, 0, 0, 0),         # it lies behind: from now on
        (0x0F, 2, 6, 0, 0),
        (0x7B, 7, 2, 0, 0),         # until when = r2 + what the packet takes
        (0xB7, 0, 0, 0, _PASS),
        (0x95, 0, 0, 0, 0),
        (0xB7, 0, 0, 0, drop),
        (0x95, 0, 0, 0, 0),
    )  # fmt: skip
    return b"".join(
        struct.pack("<BBhi", code, to | source << 4, offset, value) for code, to, source, offset, value in lines
    )
