"""The engine's settings: typed, with their defaults and limits beside them. Nothing else reads the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from scheduler_ext.core import ceiling_windows as ceiling
from scheduler_ext.core.errors import ConfigurationError, typed

MAX_BATCH = 256
"""The largest batch there can be."""
SHORT_US = 20_000
"""Handlers expected to run longer than this are never batched."""
BATCH_US = 20_000
"""Expected work a child takes at once."""
LOOKAHEAD_US = 80_000
"""How much expected short work a node's slot holds ahead: at most 1000 tasks, as each takes a thousandth of it."""
PROMOTE_LEAD_MS = 1000
"""A delayable task becomes urgent this long before its latest start."""
LARGEST = 2**31 - 1
"""The largest number of a setting: no column holds a larger one, and a moment so many seconds ahead is one."""
LARGEST_BYTES = 2**63 - 1
NAME_FORM: Final = r"^[a-z0-9][a-z0-9-]{0,62}$"
"""The name of a tenant, a plan, a pool or a cell in addresses and settings."""
NAME_WORDS: Final = "lower-case letters, digits and dashes, at most 63"
_PREFIX_FORM = re.compile(r"[A-Za-z0-9._:-]{1,63}")
_ABOVE_0 = (
    "resource_ratio_permille", "scale_within_s", "round_limit", "batch_max", "claim_ttl_s", "node_renew_s",
    "leader_lease_s", "checkpoint_every_s", "max_result_bytes", "script_processes", "script_files",
)  # fmt: skip
_WORDS = {
    "sandbox": ("auto", "container", "bubblewrap", "landlock", "process"),
    "trusted_scripts": ("sandbox", "plain"),
    "handler_memory": ("enforced", "measured"),
}


def fault_in_number(name: str, value: float) -> str:
    """Why no setting of that name can be this number; empty where it can."""
    most = LARGEST_BYTES if name.endswith("_bytes") else LARGEST
    if value < 0:
        return "must not be negative"
    return "" if value <= most else f"must be a number, at most {most}"  # what is no number is not below any


def runner_address(text: str) -> tuple[str, int] | str:
    """Where a runner listens: the path of ``unix:PATH``, host and port of ``tcp:HOST:PORT``; else ``ValueError``."""
    kind, _, rest = text.partition(":")
    if kind == "unix" and rest.startswith("/"):
        return rest
    host, _, port = rest.rpartition(":")
    if kind == "tcp" and host and port.isdecimal() and 0 < int(port) < 65_536:
        return host.strip("[]"), int(port)
    raise ValueError(f"{text!r} is not unix:/PATH or tcp:HOST:PORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConf:
    """The engine's settings. A value that cannot work is refused at the start."""

    cell: str = "default"
    """The cell this process belongs to."""
    key_prefix: str = "sw"
    """First part of every Redis key."""
    order_policy: str = "fifo"
    """Name of the policy that orders the tasks inside a line."""
    share_policy: str = "dominant_resource"
    """Name of the policy that decides which line is served next."""
    peak_permille: int = 800
    """Utilization, in thousandths, from which off-peak work waits."""
    delayable_permille: int = 950
    """Utilization, in thousandths, from which delayable and periodic work waits."""
    ceiling_windows: str = ""
    """Time windows in which other ceilings hold, like ``mon-fri 22:00-06:00 Europe/Berlin offpeak=1000``; several are
    separated by ``;``. In a window that names no category, off-peak work has no ceiling."""
    resource_ratio_permille: int = 1250
    """Slots wanted for each slot of demand, in thousandths. Alerts and the number of wanted workers use it."""
    scale_within_s: float = 60.0
    """Time within which waiting work should begin. The number of wanted workers is computed from it."""
    round_limit: int = 1024
    """The most tasks one round claims."""
    batch_max: int = 256
    """The most tasks a child takes at once; at most 256, which is what its journal holds."""
    claim_ttl_s: float = 15.0
    """A claim that has not been started within this time is taken back."""
    steal_after_s: float = 2.0
    """A claim that has not been started within this time goes to another node that may run it and idles; 0: it stays."""
    node_lease_s: float = 10.0
    """A node that has not renewed its lease for this long is lost."""
    node_renew_s: float = 2.0
    leader_lease_s: float = 6.0
    """A dispatcher that has not renewed its leadership for this long is replaced."""
    leader_renew_s: float = 1.0
    reserve_after_s: float = 5.0
    """After a task has found no room for this long, a node is kept free for it; after ten times as long where the ends
    of that node's tasks are not known."""
    record_folder: str = ""
    """Folder in which rounds are recorded, each with its snapshot, digest and decisions; empty: they are not."""
    cancel_grace_s: float = 2.0
    """Time between asking a running task to end and killing it."""
    yield_grace_s: float = 10.0
    """Time that a task with checkpoints has to save and yield when it is asked to; after that it is ended."""
    yield_after_s: float = 5.0
    """Under any order, a task with checkpoints makes room for shorter waiting work after it has run this long."""
    checkpoint_every_s: float = 2.0
    """How often a script's ``CHECKPOINT_DIR`` is checked; changes are stored."""
    drain_grace_s: float = 20.0
    """Time that running tasks have to end when their worker is stopped; the others are ended then and run again."""
    impossible_after_s: float = 60.0
    """A task that no registered node can ever run is given up after this time; 0: never."""
    retry_base_s: float = 2.0
    """Back-off before the first retry of a task that has no back-off of its own."""
    idempotency_keys_s: float = 86_400.0
    """How long a submission that repeats an idempotency key gets the first answer again."""
    max_result_bytes: int = 262_144
    handler_memory: str = "enforced"
    """What happens to a handler that exceeds its tier's memory: ``enforced`` ends it, ``measured`` only reports it."""
    sandbox: str = "auto"
    """How scripts are contained: ``auto`` takes the strongest level that the machine offers; ``container``,
    ``bubblewrap``, ``landlock`` and ``process`` ask for that level."""
    runner: str = ""
    """Address of the node's runner, which starts a container for each script: ``unix:/PATH`` or ``tcp:HOST:PORT``;
    empty: there is none."""
    runner_token_file: str = ""
    """File with the secret that this worker shares with its runner."""
    trusted_scripts: str = "sandbox"
    """How scripts of trusted tenants run: ``sandbox`` contains them too where a level offers it, ``plain`` never."""
    sandbox_uid_base: int = 60_600
    """First of 512 user ids that scripts run as, one for each slot, if the worker is root."""
    script_processes: int = 256
    """Processes and threads a script may have at once."""
    script_files: int = 20_000
    """Files and folders a script may have at once."""
    script_output_bytes: int = 67_108_864
    """A script that writes more output than this is ended; how much of it is kept is for its plan to say."""
    script_tmpfs_mb: int = 256
    """Work folders of scripts up to this size lie in memory, larger ones on disk."""
    ports_from: int = 20_000
    """First of the ports for tasks whose tier has ports; all nodes of a machine share them."""
    ports_count: int = 8_000
    """Number of ports for tasks, from ``ports_from`` on."""

    def __post_init__(self) -> None:
        for spec in fields(self):
            value = getattr(self, spec.name)
            if isinstance(value, (int, float)) and (fault := fault_in_number(spec.name, value)):
                raise ConfigurationError(fault, field=spec.name)
        for name in ("peak_permille", "delayable_permille"):
            if not 0 < getattr(self, name) <= 1000:
                raise ConfigurationError("must be from 1 to 1000", field=name)
        for name in _ABOVE_0:
            if getattr(self, name) <= 0:
                raise ConfigurationError("must be greater than 0", field=name)
        self._check_choices()
        self._check_names()
        ceiling.parse(self.ceiling_windows)
        if self.node_renew_s * 2 > self.node_lease_s:
            raise ConfigurationError("must be at most half of node_lease_s", field="node_renew_s")
        if self.leader_renew_s * 2 > self.leader_lease_s:
            raise ConfigurationError("must be at most half of leader_lease_s", field="leader_renew_s")

    def _check_choices(self) -> None:
        if self.batch_max > MAX_BATCH:
            raise ConfigurationError(f"must be at most {MAX_BATCH}", field="batch_max")
        if not 1024 <= self.ports_from <= 65_536 - self.ports_count:
            raise ConfigurationError("must be at least 1024, and all ports_count below 65536", field="ports_from")
        for name, allowed in _WORDS.items():
            if getattr(self, name) not in allowed:
                raise ConfigurationError(f"must be one of {', '.join(allowed)}", field=name)

    def _check_names(self) -> None:
        if not re.fullmatch(NAME_FORM, self.cell):
            raise ConfigurationError(f"must be {NAME_WORDS}", field="cell")
        if not _PREFIX_FORM.fullmatch(self.key_prefix):
            raise ConfigurationError("must be letters, digits, dots, colons and dashes, at most 63", field="key_prefix")
        if self.runner:
            try:
                runner_address(self.runner)
            except ValueError as error:
                raise ConfigurationError(str(error), field="runner") from error

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> SchedulerConf:
        """Build it from settings; an unknown name or a value of the wrong type is a ``ConfigurationError``."""
        known = {spec.name: str(spec.type) for spec in fields(cls)}
        for name in values:
            if name not in known:
                raise ConfigurationError(f"there is no such setting; known are {', '.join(sorted(known))}", field=name)
        made = cls(**{name: typed(value, known[name], name) for name, value in values.items()})
        if made.sandbox == "container" and not made.runner:
            raise ConfigurationError("must be set where sandbox is container", field="runner")
        if made.runner and not made.runner_token_file:
            raise ConfigurationError("must be set beside runner", field="runner_token_file")
        return made
