"""`python -m tests.lab matrix`: move the example projects with each combination of versions that can be had here."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from slackwater.local.servers import ServerError
from slackwater.settings.place import ROOT
from tests.lab.benchmarks import machine, pages
from tests.lab.benchmarks.scenarios import Scenario
from tests.lab.matrix.moved import EXAMPLES, Example, Moved, built_wheel, environment
from tests.lab.matrix.servers import broker, postgres
from tests.lab.matrix.sources import POSTGRES, REDIS, NotToBeHad, fetched, python, said
from tests.lab.matrix.suites import interface

TABLE: Final = Scenario(
    name="versions", title="What ran with what", parameters={},
    columns={"python": "Python", "django": "Django", "celery": "Celery", "postgres": "PostgreSQL",
             "redis": "Redis or Valkey", "shop": "shop", "letters": "letters", "interface": "django.tasks' own tests"},
)  # fmt: skip
WITH_VERSION: Final = (
    "from importlib import metadata; import platform, sys; "
    "print(platform.python_version(), *map(metadata.version, sys.argv[1:]))"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A combination, by the numbers that are asked for."""

    python: str
    django: str
    celery: str
    postgres: str
    redis: str


# Each version is in at least one, the oldest together and the newest together; Django 6.0 needs Python 3.12.
SHORT: Final = (
    Row("3.11", "5.2", "5.5", "15", "Redis 7"),
    Row("3.12", "6.0", "5.6", "16", "Redis 8"),
    Row("3.13", "5.2", "5.7", "17", "Valkey 8"),
    Row("3.14", "6.0", "5.7", "18", "Valkey 9"),
)
LONG: Final = (
    *SHORT,
    Row("3.14", "5.2", "5.5", "15", "Redis 8"),
    Row("3.13", "6.0", "5.5", "18", "Redis 7"),
    Row("3.12", "5.2", "5.7", "15", "Valkey 9"),
    Row("3.11", "5.2", "5.6", "17", "Valkey 8"),
)


class Command(BaseCommand):
    """The prose of the page is written by hand; the block of the table is replaced."""

    help = "Move the examples with each combination of versions that can be had here, and write the table of the page."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--long", action="store_true", help="eight combinations instead of four")
        parser.add_argument(
            "--only", type=int, metavar="N", help="one of them, counted from 1; the others stay as they were"
        )
        parser.add_argument("--page", type=Path, default=ROOT / "docs" / "versions.md", help="where the table goes")
        parser.add_argument("--cache", type=Path, default=ROOT / "var" / "matrix", help="where servers are kept")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run, print, write."""
        rows, only = LONG if options["long"] else SHORT, options["only"]
        kept = options["cache"] / "results.json"
        found: dict[str, dict[str, str]] = json.loads(kept.read_text()) if only and kept.exists() else {}
        with tempfile.TemporaryDirectory(prefix="slackwater-matrix-") as folder:
            wheel = built_wheel(Path(folder) / "wheel")
            for number, row in enumerate(rows, start=1):
                if only in (None, number):
                    line = found[str(number)] = self.tried(row, Path(folder) / str(number), wheel, options["cache"])
                    self.stdout.write("  ".join(line.values()))
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    kept.write_text(json.dumps(found))
        lines = [found[number] for number in sorted(found)]
        if len(lines) >= len(rows):
            pages.write_block(
                options["page"], TABLE, "make test-matrix", lines, machine.describe("each with its own servers")
            )
            self.stdout.write(f"written: {options['page']}")
        if any("failed" in line.values() for line in lines):
            raise CommandError("a combination failed")

    def tried(self, row: Row, folder: Path, wheel: Path, cache: Path) -> dict[str, str]:
        """What became of one combination; what cannot be had is said, never claimed."""
        line: dict[str, str] = {**asdict(row), **dict.fromkeys(WORKS, "–")}
        try:
            interpreter = python(row.python, cache)
            database = fetched(POSTGRES[row.postgres], f"PostgreSQL {row.postgres}", cache)
            redis = fetched(REDIS[row.redis], row.redis, cache)
            pins = [f"Django~={row.django}.0", f"celery~={row.celery}.0"]
            programs = environment(folder / "venv", interpreter, wheel, pins)
        except NotToBeHad as error:
            return {**line, "shop": f"not to be had here: {error}"}
        found = said(str(programs / "python"), "-c", WITH_VERSION, "Django", "celery").split()
        line |= dict(zip(("python", "django", "celery"), found, strict=True))
        line |= {"postgres": _number(database), "redis": f"{row.redis.split()[0]} {_number(redis)}"}
        for name, work in WORKS.items():
            place = folder / name
            place.mkdir()
            try:
                with postgres(database, place, name) as database_url, broker(redis, place) as redis_url:
                    line[name] = work(place, programs, found[1], database_url, redis_url)
            except (AssertionError, NotToBeHad, ServerError, subprocess.TimeoutExpired) as error:
                self.stderr.write(f"{row}: {name}: {error}")
                line[name] = "failed"
        return line


def _moved(example: Example, place: Path, programs: Path, _: str, database_url: str, redis_url: str) -> str:
    moved = Moved(example, place, programs, database_url=database_url, redis_url=redis_url)
    sys.stdout.write(moved.move())
    moved.prepare()
    moved.run()
    moved.check()
    return f"{moved.runs().total()} runs, exact"


def _interface(place: Path, programs: Path, django: str, database_url: str, _: str) -> str:
    suite = interface(django)
    return f"{suite.run(programs, place, database_url).passed} of {suite.passes} pass"


WORKS: Final[Mapping[str, Callable[[Path, Path, str, str, str], str]]] = {
    **{example.name: partial(_moved, example) for example in EXAMPLES},
    "interface": _interface,
}
"""What is done with a combination, in its folder, with its programs, Django's version and the addresses of its servers."""


def _number(program: Path) -> str:
    """The version a server tells."""
    words = said(str(program), "--version").replace("v=", "").split()
    return next(word for word in words if word[0].isdigit())
