"""What a runner is started with. All of it comes from its command line: it reads no environment."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_ext.sandbox.container import address


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The operator's choices, and the most that any worker may ask for."""

    listen: str
    token_file: str
    engine: str
    image: str
    runtime: str = ""
    network: str = ""
    name: str = "slackwater"
    uid_base: int = 59_000
    runs: int = 64
    most_memory_mb: int = 65_536
    most_cpu_milli: int = 64_000
    most_disk_mb: int = 1_048_576
    most_processes: int = 4_096
    cap_grace_s: float = 60.0
    warm_s: float = 60.0
    stop_grace_s: float = 20.0


_DEFAULT = Options(listen="", token_file="", engine="unix:///var/run/docker.sock", image="")


def parse(argv: Sequence[str]) -> Options:
    """The options; leaves with a message where they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m scheduler_ext.runner", formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        description="Runs scripts in containers for the workers of a node. It alone speaks to the engine.",
    )  # fmt: skip
    add = parser.add_argument
    add("--listen", required=True, help="unix:/PATH (mode 0660), or tcp:HOST:PORT in a network of its own")
    add("--token-file", required=True, help="file with a secret of 16 characters or more that workers have too")
    add("--engine", default=_DEFAULT.engine, help="the engine's socket")
    add("--image", required=True,
        help="image scripts run in: it needs Python 3.11 or newer, and must be there already: nothing is pulled. "
             "A name is looked up once; its image is used until the runner ends")  # fmt: skip
    add(
        "--runtime", default="", help="OCI runtime the engine knows by this name (runsc, kata); empty: the engine's own"
    )
    add(
        "--network", default="", help="the engine's network for scripts whose plan grants one; empty: no script has one"
    )
    add("--name", default=_DEFAULT.name, help="tells the containers of several runners of one engine apart")
    add("--uid-base", type=int, default=_DEFAULT.uid_base, help="first of the user ids that scripts run as, one each")
    add("--runs", type=int, default=_DEFAULT.runs, help="the most scripts at once")
    add("--most-memory-mb", type=int, default=_DEFAULT.most_memory_mb, help="the most memory of a script")
    add("--most-cpu-milli", type=int, default=_DEFAULT.most_cpu_milli, help="the most CPU of a script")
    add("--most-disk-mb", type=int, default=_DEFAULT.most_disk_mb, help="the most disk of a script")
    add("--most-processes", type=int, default=_DEFAULT.most_processes, help="the most processes of a script")
    add("--cap-grace-s", type=float, default=_DEFAULT.cap_grace_s,
        help="a script whose worker has not ended it this long after its cap is ended")  # fmt: skip
    add("--warm-s", type=float, default=_DEFAULT.warm_s,
        help="how long a container that was started ahead waits for a script; 0: none is started ahead")  # fmt: skip
    add("--stop-grace-s", type=float, default=_DEFAULT.stop_grace_s,
        help="how long scripts that run may go on when the runner is told to end")  # fmt: skip
    options = Options(**vars(parser.parse_args(argv)))
    try:
        address(options.listen)
    except ValueError as error:
        parser.error(f"--listen: {error}")
    if not 1_000 <= options.uid_base < 2_000_000_000:
        parser.error("--uid-base: scripts run as ordinary users: from 1000 on")
    if options.runs < 1:
        parser.error("--runs: at least 1")
    return options
