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

The same program keeps the loopback apart. What a group sends there bears its number, and it hears only what does: so
neither another script's sockets nor the node's own servers can be talked to. It hears besides, of nobody's: that there
is no such port (a reset), and answers of a name server of the node's own (port 53).
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from pathlib import Path
from typing import Final

BURST_S: Final = 2.0
"""How far a script may be ahead of its disk rate: a program not started lately takes some hundred reads."""
BURST_NS: Final = 200_000_000
"""TCP sends in bursts of 64 KiB: with less room than this it stays far below its rate."""
_CALL: Final = {"x86_64": 321, "aarch64": 280}
_MAP_CREATE, _MAP_UPDATE, _PROG_LOAD, _PROG_ATTACH = 0, 2, 5, 8
_ARRAY: Final = 2
_CGROUP_SKB: Final = 8
_INGRESS, _EGRESS = 0, 1
_ALLOW_MULTI: Final = 2
_PASS: Final = 1
_DROP: Final = {_INGRESS: 0, _EGRESS: 2}
"""The verdict that drops a packet. On its way out 2 signals congestion to the sender; 0 would fail its call."""
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
    """A rate of operations a second on one disk: the group is frozen while it is ahead."""

    def __init__(self, count: Path, freeze: Path, device: str) -> None:
        """``count`` reads the operations (``io.stat``, or version 1's); ``freeze`` stops the group
        (``cgroup.freeze``).
        """
        self._count, self._freeze, self._device = count, freeze, device
        self._iops = self._seen = 0
        self._until = 0.0
        self._frozen = True
        self._operations()
        self.lift()

    def limit(self, iops: int) -> None:
        """Enforce this rate from now on; 0: none."""
        self.lift()
        self._iops = iops
        if iops:
            self._seen, self._until = self._operations(), time.monotonic()

    def lift(self) -> None:
        """Enforce nothing, and thaw what is frozen: only then can it end."""
        self._iops = 0
        self._set(frozen=False)

    def look(self) -> None:
        """Count, and freeze or thaw. To be called often: what happens between two calls cannot be undone."""
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
        """Parse a line: version 1 has one for each kind, version 2 one with ``rios=`` and ``wios=``."""
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
    """A bandwidth, in and out each, of the processes in a version 2 group, the loopback included."""

    def __init__(self, folder: Path) -> None:
        self._number = int.from_bytes(os.urandom(4)) | 1
        group = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._maps = [self._attached(group, way) for way in (_INGRESS, _EGRESS)]
        finally:
            os.close(group)
        self.limit(0)

    def limit(self, kbps: int, *, apart: bool = False) -> None:
        """Enforce so many kbit/s; 0: unlimited. ``apart``: nobody else can be reached on the loopback."""
        pace = 1024 * 8 * 1_000_000 // kbps if kbps else 0
        value = struct.pack("<QQQQ", 0, pace, BURST_NS, self._number if apart else 0)
        for handle in self._maps:
            key, held = ctypes.create_string_buffer(4), ctypes.create_string_buffer(value, len(value))
            _bpf(_MAP_UPDATE, "<IxxxxQQQ", handle, ctypes.addressof(key), ctypes.addressof(held), 0)

    @staticmethod
    def _attached(group: int, way: int) -> int:
        """The map of a program that is attached; with the group the program goes, with that the map."""
        table = _bpf(_MAP_CREATE, "<IIIII", _ARRAY, 4, 32, 1, 0)
        code = _program(table, way)
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


Line = tuple[int, int, int, int | str, int] | str
"""An instruction (code, to, from, offset, value), or a name of the place where the next stands; a jump names one."""
_SENT: Final[tuple[Line, ...]] = (
    (0x63, 6, 2, 8, 0),         # the packet's mark = r2
)  # fmt: skip
_HEARD: Final[tuple[Line, ...]] = (
    (0x61, 3, 6, 8, 0),         # r3 = the packet's mark
    (0x1D, 3, 2, "count", 0),
    (0x55, 3, 0, "drop", 0),    # another group's
    (0xB7, 2, 0, 0, 0),
    (0xB7, 4, 0, 0, 10),
    (0xBF, 1, 6, 0, 0),
    (0xBF, 3, 10, 0, 0),
    (0x07, 3, 0, 0, -24),       # r3 = room on the stack
    (0x85, 0, 0, 0, 26),        # r0 = bpf_skb_load_bytes(r1, r2, r3, r4)
    (0x55, 0, 0, "drop", 0),
    (0x71, 3, 10, -24, 0),
    (0xBF, 4, 3, 0, 0),
    (0x77, 4, 0, 0, 4),
    (0xB7, 9, 0, 0, 40),        # r9 = where the header of TCP or UDP begins
    (0x71, 8, 10, -18, 0),      # r8 = which of them it is
    (0x15, 4, 0, "ports", 6),
    (0x57, 3, 0, 0, 15),
    (0x67, 3, 0, 0, 2),
    (0xBF, 9, 3, 0, 0),
    (0x71, 8, 10, -15, 0),
    "ports",
    (0xBF, 1, 6, 0, 0),
    (0xBF, 2, 9, 0, 0),
    (0xBF, 3, 10, 0, 0),
    (0x07, 3, 0, 0, -24),
    (0xB7, 4, 0, 0, 8),
    (0x85, 0, 0, 0, 26),
    (0x55, 0, 0, "drop", 0),
    (0x69, 3, 10, -24, 0),
    (0x15, 3, 0, "count", 0x3500),  # from port 53
    (0x55, 8, 0, "drop", 6),    # not TCP
    (0xBF, 1, 6, 0, 0),
    (0xBF, 2, 9, 0, 0),
    (0x07, 2, 0, 0, 13),
    (0xBF, 3, 10, 0, 0),
    (0x07, 3, 0, 0, -24),
    (0xB7, 4, 0, 0, 1),
    (0x85, 0, 0, 0, 26),
    (0x55, 0, 0, "drop", 0),
    (0x71, 3, 10, -24, 0),
    (0x57, 3, 0, 0, 4),
    (0x15, 3, 0, "drop", 0),    # no reset
)  # fmt: skip


def _program(table: int, way: int) -> bytes:
    """The instructions. The map's one value is (until when, ns for a KiB, ns of burst, number), eight bytes each."""
    return _assembled((
        (0xBF, 6, 1, 0, 0),         # r6 = the packet
        (0x62, 10, 0, -4, 0),       # the key: 0
        (0xBF, 2, 10, 0, 0),
        (0x07, 2, 0, 0, -4),
        (0x18, 1, 1, 0, table),     # r1 = the map
        (0x00, 0, 0, 0, 0),
        (0x85, 0, 0, 0, 1),         # r0 = bpf_map_lookup_elem(r1, r2)
        (0x15, 0, 0, "pass", 0),
        (0xBF, 7, 0, 0, 0),
        (0x79, 2, 7, 24, 0),        # r2 = its number
        (0x15, 2, 0, "count", 0),
        (0x61, 3, 6, 40, 0),        # r3 = the interface
        (0x55, 3, 0, "count", 1),   # not the loopback
        *(_SENT if way == _EGRESS else _HEARD),
        "count",
        (0x61, 8, 6, 0, 0),         # r8 = the packet's length
        (0x79, 1, 7, 8, 0),         # r1 = ns for a KiB
        (0x15, 1, 0, "pass", 0),
        (0x2F, 8, 1, 0, 0),
        (0x77, 8, 0, 0, 10),        # r8 = what the packet takes, ns
        (0x85, 0, 0, 0, 5),         # r0 = bpf_ktime_get_ns()
        (0x79, 2, 7, 0, 0),         # r2 = until when
        (0x79, 3, 7, 16, 0),
        (0x0F, 3, 0, 0, 0),         # r3 = now and the burst
        (0x2D, 2, 3, "drop", 0),
        (0x3D, 2, 0, "ahead", 0),
        (0xBF, 2, 0, 0, 0),         # it lies behind: from now on
        "ahead",
        (0x0F, 2, 8, 0, 0),
        (0x7B, 7, 2, 0, 0),         # until when = r2 + what the packet takes
        "pass",
        (0xB7, 0, 0, 0, _PASS),
        (0x95, 0, 0, 0, 0),
        "drop",
        (0xB7, 0, 0, 0, _DROP[way]),
        (0x95, 0, 0, 0, 0),
    ))  # fmt: skip


def _assembled(lines: tuple[Line, ...]) -> bytes:
    places: dict[str, int] = {}
    code = [line for line in lines if not isinstance(line, str)]
    count = 0
    for line in lines:
        if isinstance(line, str):
            places[line] = count
        else:
            count += 1
    return b"".join(
        struct.pack("<BBhi", code, to | source << 4, places[jump] - at - 1 if isinstance(jump, str) else jump, value)
        for at, (code, to, source, jump, value) in enumerate(code)
    )
