"""The supervisor as a program of its own: `python -m slackwater.local.program FD` reads there what `up` was asked for.

`manage.py up` becomes this program when it has checked the settings. It had loaded Django with all apps for that, 50 MB
that nobody would use for as long as the platform runs.
"""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from slackwater.local.server_setup import source_folders
from slackwater.local.servers import ServerError
from slackwater.local.supervisor import UpOptions, run_platform


def become(options: UpOptions) -> NoReturn:
    """Go on as the supervisor, as the same process. What it is told may be secret, and is on no command line."""
    told = os.memfd_create("slackwater-up", 0)  # 0: it stays open when this becomes another program
    os.write(told, json.dumps({**asdict(options), "var": str(options.var)}).encode())
    os.lseek(told, 0, os.SEEK_SET)
    sys.stdout.flush()
    sys.stderr.flush()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(source_folders())}
    os.execve(sys.executable, [sys.executable, "-m", "slackwater.local.program", str(told)], env)


def main() -> None:
    """Run what was asked for."""
    with os.fdopen(int(sys.argv[1])) as given:
        options = json.load(given)
    try:
        run_platform(UpOptions(**{**options, "var": Path(options["var"])}))
    except ServerError as error:
        raise SystemExit(f"CommandError: {error}") from None


if __name__ == "__main__":
    main()
