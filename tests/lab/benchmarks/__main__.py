"""A process of the benchmark that runs inside the platform: ``peer CONFIG`` or ``micro NAME PARAMETERS``."""

from __future__ import annotations

import json
import sys

import django

from tests.lab.benchmarks.measure import main
from tests.lab.benchmarks.peer import Config


def run(what: str, arguments: list[str]) -> None:
    """Set Django up on the run's servers, which the environment names, and measure."""
    django.setup()
    if what == "peer":
        from tests.lab.benchmarks.own import Slackwater

        main(Slackwater(Config.from_json(arguments[0])))
    else:
        from tests.lab.benchmarks.live import LIVE
        from tests.lab.benchmarks.micro import MICROS

        {**MICROS, **LIVE}[arguments[0]](**json.loads(arguments[1]))


run(sys.argv[1], sys.argv[2:])
