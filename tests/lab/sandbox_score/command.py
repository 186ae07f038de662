"""``python -m tests.lab sandbox_score``: run the hostile scripts at every level and say what held."""

from __future__ import annotations

import asyncio
import tempfile
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.sandbox import detect
from scheduler_ext.sandbox.base import Found, Level
from scheduler_ext.sandbox.pool import SlotPool
from slackwater.settings.place import ROOT
from slackwater_conf import conf
from tests.lab.sandbox_score import hostile, report
from tests.lab.sandbox_score.targets import targets

PAGE = ROOT / "docs" / "sandbox-results.md"
UNCOUNTED = " without control groups"
Results = dict[str, dict[str, hostile.Verdict]]


class Command(BaseCommand):
    """Prints a line for each script and level; the exit code is 1 when something was not contained."""

    conf: SchedulerConf
    help = "Run hostile scripts in every sandbox level this machine offers, and say which were contained."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which ones, and whether to write the page."""
        parser.add_argument("--script", action="append", help="only this one; may be repeated")
        parser.add_argument("--write", action="store_true", help="write docs/sandbox-results.md")
        parser.add_argument(
            "--plain", action="store_true",
            help="also run, WITHOUT a sandbox, those that are safe to: shows that they succeed there",
        )  # fmt: skip

    def handle(self, **options: Any) -> None:
        """Run them."""
        scripts = [s for s in hostile.load() if not options["script"] or s.name in options["script"]]
        if not scripts:
            raise CommandError("there is no such script in tests/sandbox")
        self.conf = conf().scheduler
        found = asyncio.run(detect.try_all(hostile.settings(Level.PROCESS, self.conf)))
        results = self._run_all(scripts, found, plain=bool(options["plain"]))
        if options["write"]:
            PAGE.write_text(report.render(scripts, results, found))
            self.stdout.write(f"written: {PAGE.relative_to(ROOT)}")
        bad = [
            f"{column}: {name}"
            for column, verdicts in results.items()
            for name, verdict in verdicts.items()
            if not verdict.contained and column != Level.PROCESS
        ]
        if bad:
            raise CommandError("not contained: " + ", ".join(bad))
        if not any(one.works and one.level.contains_untrusted for one in found):
            raise CommandError("this machine offers no sandbox: scripts of untrusted tenants are refused")

    def _run_all(self, scripts: Sequence[hostile.Hostile], found: Sequence[Found], *, plain: bool) -> Results:
        results: Results = {}
        for one in found:
            if not one.works or (one.level is Level.PROCESS and not plain):
                continue
            chosen = [s for s in scripts if one.level.contains_untrusted or s.escapes_plainly]
            results[one.level] = self._run(one.level, chosen, groups=True)
            if one.groups and one.level in {Level.BUBBLEWRAP, Level.LANDLOCK}:
                results[one.level + UNCOUNTED] = self._run(one.level, chosen, groups=False)
        return results

    def _run(self, level: Level, scripts: Sequence[hostile.Hostile], *, groups: bool) -> dict[str, hostile.Verdict]:
        pool = SlotPool(hostile.settings(level, self.conf), groups=groups)
        pool.probe()
        try:
            with tempfile.TemporaryDirectory(prefix="slackwater-score-") as folder:
                return asyncio.run(self._attack(pool, scripts, Path(folder), groups=groups))
        finally:
            pool.close()

    async def _attack(
        self, pool: SlotPool, scripts: Sequence[hostile.Hostile], root: Path, *, groups: bool
    ) -> dict[str, hostile.Verdict]:
        verdicts = {}
        async with targets() as against:
            for script in scripts:
                verdict = verdicts[script.name] = await hostile.attack(pool, script, against, root)
                word = "contained" if verdict.contained else "NOT CONTAINED"
                name = pool.level + ("" if groups else UNCOUNTED)
                self.stdout.write(f"{name:36} {script.name:18} {word:13} {verdict.seconds:6.2f} s  {verdict.why}")
        return verdicts
