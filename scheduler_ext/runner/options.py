"""The options of a runner. All come from its command line: it reads no environment."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from scheduler_ext.conf import runner_address

_TYPES = {"str": str, "int": int, "float": float}


def _told(meaning: str, default: Any = MISSING) -> Any:
    """An option and its meaning; one without a default must be given."""
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The operator's choices, and the most that any worker may ask for: each is an option of the command line."""

    listen: str = _told("unix:/PATH (mode 0660), or tcp:HOST:PORT in a network of its own")
    token_file: str = _told("file with a secret of 16 characters or more that workers have too")
    engine: str = _told("the engine's socket", "unix:///var/run/docker.sock")
    image: str = _told(
        "image scripts run in: it needs Python 3.11 or newer, and must be there already: nothing is pulled. "
        "A name is looked up once; its image is used until the runner ends"
    )
    runtime: str = _told("OCI runtime the engine knows by this name (runsc, kata); empty: the engine's own", "")
    network: str = _told("the engine's network for scripts whose plan grants one; empty: no script has one", "")
    name: str = _told("tells the containers of several runners of one engine apart", "slackwater")
    uid_base: int = _told("first of the user ids that scripts run as, one each", 59_000)
    runs: int = _told("the most scripts at once", 64)
    most_memory_mb: int = _told("the most memory of a script", 65_536)
    most_cpu_milli: int = _told("the most CPU of a script", 64_000)
    most_disk_mb: int = _told("the most disk of a script", 1_048_576)
    most_processes: int = _told("the most processes of a script", 4_096)
    cap_grace_s: float = _told("a script whose worker has not ended it this long after its cap is ended", 60.0)
    warm_s: float = _told(
        "how long a container that was started ahead waits for a script; 0: none is started ahead", 60.0
    )
    stop_grace_s: float = _told("how long scripts that run may go on when the runner is told to end", 20.0)


def parse(argv: Sequence[str]) -> Options:
    """Read the options; exits with a message where they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m scheduler_ext.runner", formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        description="Runs scripts in containers for the workers of a node. It alone speaks to the engine.",
    )  # fmt: skip
    for spec in fields(Options):
        required = spec.default is MISSING
        parser.add_argument(
            "--" + spec.name.replace("_", "-"), type=_TYPES[str(spec.type)], required=required,
            default=None if required else spec.default, help=spec.metadata["help"],
        )  # fmt: skip
    options = Options(**vars(parser.parse_args(argv)))
    try:
        runner_address(options.listen)
    except ValueError as error:
        parser.error(f"--listen: {error}")
    if not 1_000 <= options.uid_base < 2_000_000_000:
        parser.error("--uid-base: scripts run as ordinary users: from 1000 on")
    if options.runs < 1:
        parser.error("--runs: at least 1")
    return options
