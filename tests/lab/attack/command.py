"""``python -m tests.lab attack``: knock at every door of the running platform and say what came of it."""

from __future__ import annotations

import contextlib
import json
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tests.lab.attack import ground, probes


class Command(BaseCommand):
    """Prints a line for each probe; the exit code is 1 when one did not hold."""

    help = "Attack a platform of its own as `make up` runs it, and say what held."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which doors, and how long."""
        parser.add_argument("--door", action="append", default=[], help="only this one; may be repeated")
        parser.add_argument("--short", action="store_true", help="without the probes that take long")
        parser.add_argument("--json", action="store_true", help="the score as JSON on standard output")
        parser.add_argument("--list", action="store_true", help="say what there is, and attack nothing")

    def handle(self, **options: Any) -> None:
        """Attack."""
        chosen = probes.load(options["door"], short=options["short"])
        if not chosen:
            raise CommandError("there is no such door in tests/lab/attack/doors")
        if options["list"]:
            for one in chosen:
                self.stdout.write(f"{one.door:10} {one.name:44} {one.attack}")
            return
        scores = self._attack(chosen, quiet=options["json"])
        bad = [one for one in scores if not one.held]
        if options["json"]:
            self.stdout.write(json.dumps([
                {"door": one.probe.door, "probe": one.probe.name, "expected": one.probe.expected, "got": one.got,
                 "held": one.held, "seconds": round(one.seconds, 2)}
                for one in scores
            ]))  # fmt: skip
        else:
            self.stdout.write(f"{len(scores) - len(bad)} of {len(scores)} held")
        if bad:
            raise CommandError("not held: " + ", ".join(f"{one.probe.door}: {one.probe.name}" for one in bad))

    def _attack(self, chosen: Sequence[probes.Probe], *, quiet: bool) -> list[probes.Score]:
        scores = []
        with contextlib.ExitStack() as stack:
            under = stack.enter_context(ground.platform()) if any(one.ground for one in chosen) else None
            for one in chosen:
                score = probes.attempt(one, under)
                scores.append(score)
                if not quiet:
                    word = "held" if score.held else "NOT HELD"
                    self.stdout.write(
                        f"{one.door:10} {one.name:44} {word:8} {score.seconds:6.2f} s  expected {one.expected!r},"
                        f" got {score.got!r}"
                    )
                    self.stdout.flush()
        return scores
