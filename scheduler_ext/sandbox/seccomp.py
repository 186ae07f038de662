"""The system-call filter of a script, as a classic BPF program written here: no library is needed.

What a script has no business with is refused with EPERM; anything that would open a new namespace too; sockets
other than local and internet ones do not exist for it (vsock is in no namespace: it would lead to the hypervisor).
A call by another architecture's numbers kills the process.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping
from typing import Final

_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_ERRNO: Final = 0x00050000
_EPERM: Final = 1
_ENOSYS: Final = 38
_EAFNOSUPPORT: Final = 97

_LOAD: Final = 0x20
_JEQ: Final = 0x15
_JGE: Final = 0x35
_JSET: Final = 0x45
_RET: Final = 0x06
_NR: Final = 0
_ARCH: Final = 4

_CLONE_NEW: Final = 0x7E020000
_CLONE_NEWTIME: Final = 0x80
_X32: Final = 0x40000000
_TIOCSTI: Final = 0x5412
_TIOCLINUX: Final = 0x541C
_PRIO_PROCESS: Final = 0
_IOPRIO_WHO_PROCESS: Final = 1

# Name: number on x86_64, number on aarch64 (-1: the call is not there).
_REFUSED: Final[dict[str, tuple[int, int]]] = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "setns": (308, 268),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "pidfd_getfd": (438, 438), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "iopl": (172, -1), "ioperm": (173, -1),
    "syslog": (103, 116), "lookup_dcookie": (212, 18), "nfsservctl": (180, 42), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "fanotify_init": (300, 262), "vhangup": (153, 58), "modify_ldt": (154, -1),
    "mbind": (237, 235), "set_mempolicy": (238, 237), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "memfd_secret": (447, 447), "uselib": (134, -1), "sysfs": (139, -1), "statmount": (457, 457),
    "listmount": (458, 458),
    # What they take is counted for the whole machine, or for all processes of one user; or it halts every disk.
    "io_setup": (206, 0), "io_submit": (209, 2), "sync": (162, 81), "syncfs": (306, 267), "inotify_init": (253, -1),
    "inotify_init1": (294, 26),
}  # fmt: skip
# Refused too where no namespace hides the node's other processes.
_REFUSED_STRICT: Final[dict[str, tuple[int, int]]] = {
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192),
    "semctl": (66, 191), "mq_open": (240, 180),
}  # fmt: skip
# Refused where no control group counts the memory that no process seems to hold.
_HIDES_MEMORY: Final[dict[str, tuple[int, int]]] = {"memfd_create": (319, 279), "shmget": (29, 194)}
# Calls that act on any process of the same user: (x86_64, aarch64, the value that each argument must have to mean
# nobody but oneself). Zero is oneself only of one's kind: as a user it is each process of one's own.
_SELF_ONLY: Final[dict[str, tuple[int, int, dict[int, int]]]] = {
    "prlimit64": (302, 261, {0: 0}), "setpriority": (141, 140, {0: _PRIO_PROCESS, 1: 0}),
    "ioprio_set": (251, 30, {0: _IOPRIO_WHO_PROCESS, 1: 0}), "sched_setaffinity": (203, 122, {0: 0}),
    "sched_setscheduler": (144, 119, {0: 0}), "sched_setparam": (142, 118, {0: 0}),
    "sched_setattr": (314, 274, {0: 0}),
}  # fmt: skip
_CLONE: Final = (56, 220)
_CLONE3: Final = (435, 435)
_UNSHARE: Final = (272, 97)
_SOCKET: Final = (41, 198)
_SOCKETPAIR: Final = (53, 199)
_IOCTL: Final = (16, 29)
_PERSONALITY: Final = (135, 92)
_MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOCAL_AND_INTERNET: Final = (1, 2, 10)
_INTERNET: Final = (2, 10)


class _Program:
    """Instructions in order; jumps are short and go forward."""

    def __init__(self) -> None:
        self.code: list[bytes] = []

    def add(self, code: int, value: int, hit: int = 0, miss: int = 0) -> None:
        self.code.append(struct.pack("HBBI", code, hit, miss, value & 0xFFFFFFFF))

    def load(self, offset: int) -> None:
        self.add(_LOAD, offset)

    def answer(self, value: int) -> None:
        self.add(_RET, value)

    def refuse(self, number: int, errno: int = _EPERM) -> None:
        """Refuse this call; its number is loaded."""
        if number >= 0:
            self.add(_JEQ, number, 0, 1)
            self.answer(_ERRNO | errno)

    def on(self, number: int, body: _Program) -> None:
        """Run ``body`` for this call, whose number is loaded; the body must end in an answer."""
        self.add(_JEQ, number, 0, len(body.code))
        self.code += body.code


def _argument(index: int) -> int:
    return 16 + 8 * index


def _by_value(index: int, values: tuple[int, ...], hit: int, miss: int) -> _Program:
    """Answer ``hit`` if the argument is one of ``values``, else ``miss``."""
    body = _Program()
    body.load(_argument(index))
    for position, value in enumerate(values):
        body.add(_JEQ, value, len(values) - position, 0)
    body.answer(miss)
    body.answer(hit)
    return body


def _unless_all(values: Mapping[int, int]) -> _Program:
    """Refuse unless each argument, by its index, has its value."""
    body = _Program()
    for index, value in values.items():
        body.load(_argument(index))
        body.add(_JEQ, value, 1, 0)
        body.answer(_ERRNO | _EPERM)
    body.answer(_ALLOW)
    return body


def _if_bits(index: int, bits: int) -> _Program:
    body = _Program()
    body.load(_argument(index))
    body.add(_JSET, bits, 0, 1)
    body.answer(_ERRNO | _EPERM)
    body.answer(_ALLOW)
    return body


def program(*, network: bool, strict: bool, counted: bool = True, machine: str | None = None) -> bytes:
    """The filter for this machine (or ``machine``: ``x86_64``, ``aarch64``); ``LookupError`` on any other.

    ``strict`` is for levels without namespaces: no local sockets (they would reach the node's own), no System V
    objects, no calls upon other processes. There ``network`` decides whether internet sockets exist at all.
    ``counted``: a control group counts all memory; where none does, memory may not hide behind descriptors.
    """
    name = machine or os.uname().machine
    if name not in _MACHINES:
        raise LookupError(f"there is no system-call filter for {name}")
    column, audit = _MACHINES[name]
    out = _Program()
    out.load(_ARCH)
    out.add(_JEQ, audit, 1, 0)
    out.answer(_KILL)
    out.load(_NR)
    if column == 0:
        out.add(_JGE, _X32, 0, 1)
        out.answer(_KILL)
    families: tuple[int, ...] = _LOCAL_AND_INTERNET
    if strict:
        families = _INTERNET if network else ()
    out.on(_SOCKET[column], _by_value(0, families, _ALLOW, _ERRNO | _EAFNOSUPPORT))
    out.on(_SOCKETPAIR[column], _by_value(0, (1,), _ALLOW, _ERRNO | _EAFNOSUPPORT))
    out.on(_CLONE[column], _if_bits(0, _CLONE_NEW))
    out.on(_UNSHARE[column], _if_bits(0, _CLONE_NEW | _CLONE_NEWTIME))
    out.on(_IOCTL[column], _by_value(1, (_TIOCSTI, _TIOCLINUX), _ERRNO | _EPERM, _ALLOW))
    out.on(_PERSONALITY[column], _by_value(0, (0, 0xFFFFFFFF), _ALLOW, _ERRNO | _EPERM))
    # The C library falls back to clone, whose flags can be looked at; clone3's lie behind a pointer.
    out.refuse(_CLONE3[column], _ENOSYS)
    for numbers in _REFUSED.values():
        out.refuse(numbers[column])
    if not counted:
        for numbers in _HIDES_MEMORY.values():
            out.refuse(numbers[column])
    if strict:
        for numbers in _REFUSED_STRICT.values():
            out.refuse(numbers[column])
        for first, second, values in _SELF_ONLY.values():
            out.on((first, second)[column], _unless_all(values))
    out.answer(_ALLOW)
    return b"".join(out.code)


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


def load(code: bytes) -> None:
    """Install the filter on this process for good; ``OSError`` where the kernel refuses it."""
    libc = ctypes.CDLL(None, use_errno=True)
    kept = ctypes.create_string_buffer(code, len(code))
    described = _Filter(len(code) // 8, ctypes.cast(kept, ctypes.c_void_p))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(described), 0, 0):
        raise OSError(ctypes.get_errno(), "the system-call filter was refused")
