"""Shared by the platform's commands: tables or JSON, errors that name the field, exit codes for scripts."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper
from django.core.serializers.json import DjangoJSONEncoder
from django.db import Error as DatabaseError
from django.utils import timezone

from scheduler_ext.core import errors
from scheduler_ext.core.plain_text import harmless, harmless_json
from slackwater.exit_codes import exit_code
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_scope

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

ID_CHARS = 36
COLOURS = {"done": "green", "in_progress": "cyan", "failed": "red", "waiting": "yellow"}


class Harmless:
    """A stream for a command's lines, in which text of tenants cannot steer the terminal."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, said: str) -> None:
        """Write what may be several lines."""
        self._stream.write(harmless(said, lines=True))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class PlatformCommand(BaseCommand):
    """A command with ``--json``; subclasses write ``run`` and, where they work for a tenant, set ``for_tenant``."""

    for_tenant = True
    all_tenants = False
    """Without ``--tenant`` it shows the whole platform."""
    watches = False
    """It can be asked to show the same again and again."""
    requires_system_checks: list[str] = []
    pause = staticmethod(time.sleep)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON for programs instead of a table")
        if self.for_tenant:
            without = (
                "without it, the whole platform" if self.all_tenants else "may be left out while there is only one"
            )
            parser.add_argument("--tenant", help=f"slug of the tenant; {without}")
        if self.watches:
            parser.add_argument("--watch", nargs="?", type=_seconds, const=2.0, metavar="SECONDS",
                                help="show it again every so many seconds (2), until Ctrl-C")  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        """Run, and turn what goes wrong into one line and an exit code."""
        self.as_json: bool = options.get("json", False)
        self.goes_on = bool(options.get("watch"))
        """More follows: for programs each answer is one line."""
        out: Any = self.stdout
        error: Any = self.stderr
        self.stdout = OutputWrapper(cast("TextIO", Harmless(out._out)))
        self.stderr = OutputWrapper(cast("TextIO", Harmless(error._out)))
        self._out = out
        try:
            self._again(options)
        except errors.SlackwaterError as error:
            self._fail(error)
        except DatabaseError as error:
            raise CommandError(f"the database: {str(error).strip()}", returncode=75) from error

    @cached_property
    def console(self) -> Console:
        """Where tables and bars are drawn; loading what draws them takes longer than most answers for programs."""
        from rich.console import Console

        # Output that goes to a file or a pipe is not cut to a screen that is not there.
        width = None if sys.stdout.isatty() else 200
        return Console(file=self._out, width=width, highlight=False, soft_wrap=width is not None)

    def _again(self, options: dict[str, Any]) -> None:
        """Run once, or until somebody ends it."""
        pause = options.get("watch")
        with contextlib.suppress(KeyboardInterrupt) if pause else contextlib.nullcontext():
            while True:
                if pause and not self.as_json:
                    self.console.clear()
                self.run(options)
                if not pause:
                    return
                self.stdout.flush()
                self.pause(pause)

    def run(self, options: dict[str, Any]) -> None:
        raise NotImplementedError

    @staticmethod
    def once(options: dict[str, Any]) -> None:
        """Refuse to do again and again what changes something."""
        if options["watch"]:
            raise errors.InvalidInput("goes with what is shown, not with what is done", field="--watch")

    @property
    def is_quiet(self) -> bool:
        """Whether no progress is drawn: in a file or a pipe a bar would be empty lines."""
        return self.as_json or not self.console.is_terminal

    def _fail(self, error: errors.SlackwaterError) -> NoReturn:
        code = exit_code(error)
        if self.as_json:
            problem = {"code": error.code, "detail": error.message, "field": error.field}
            self.stderr.write(json.dumps(problem))
            raise SystemExit(code)
        raise CommandError(str(error), returncode=code)

    def show(self, value: Any) -> None:
        """Print a value as JSON."""
        indent = None if self.goes_on else 2
        said = json.dumps(value, cls=DjangoJSONEncoder, indent=indent, ensure_ascii=False)
        self.stdout.write(harmless_json(said))

    def answer(self, value: Any, *lines: str) -> None:
        """Print a value as JSON where that is asked for, else the lines that tell it to people."""
        if self.as_json:
            self.show(value)
        else:
            for line in lines:
                self.stdout.write(line)

    def answer_table(
        self, value: Any, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str
    ) -> None:
        """Print a value as JSON where that is asked for, else its rows as a table."""
        if self.as_json:
            self.show(value)
        else:
            self.show_table(title, columns, rows, empty=empty)

    def bar(self) -> Progress:
        """A progress bar, if the output is a terminal."""
        from rich.progress import Progress

        return Progress(console=self.console, disable=self.is_quiet, transient=True)

    @contextlib.contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """A bar that moves while nobody knows how much is left."""
        with self.bar() as bar:
            bar.add_task(doing, total=None)
            yield

    def show_table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
        """Print rows as a table, or ``empty`` where there are none."""
        from rich.table import Table

        rows = list(rows)
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
        for number, column in enumerate(columns):
            # An id that is cut or broken cannot be copied.
            whole = any(isinstance(row[number], uuid.UUID) for row in rows)
            table.add_column(column, overflow="fold", no_wrap=whole, min_width=ID_CHARS if whole else None)
        for row in rows:
            table.add_row(*(text(value) for value in row))
        self.console.print(table if table.row_count else empty)

    def show_pairs(self, pairs: Mapping[str, Any]) -> None:
        """Print names and values, one a line; empty values are left out."""
        from rich.table import Table

        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in pairs.items():
            if value not in (None, "", [], {}):
                table.add_row(name.replace("_", " "), text(value))
        self.console.print(table)


def text(value: Any) -> str:
    """A value as people read it, with rich's marks made harmless."""
    if value is None:
        return "–"
    if isinstance(value, datetime):
        return timezone.localtime(value).strftime("%Y-%m-%d %H:%M:%S %Z")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(entry, str | uuid.UUID | int) for entry in value):
        return escaped(", ".join(map(str, value)))
    if isinstance(value, dict | list):
        return escaped(json.dumps(value, ensure_ascii=False, cls=DjangoJSONEncoder))
    shown = escaped(str(value))
    colour = COLOURS.get(shown)
    return f"[{colour}]{shown}[/]" if colour else shown


def escaped(value: str) -> str:
    """Text in which square brackets are only brackets, and nothing steers the terminal."""
    return harmless(value, lines=True).replace("[", "\\[")


def find_tenant(slug: str | None, field: str = "--tenant") -> Tenant:
    """The tenant of that slug, or the only one there is; ``InvalidInput`` when that is not clear.

    Of the two demo tenants the free one is meant only where it is named. ``field``: how the command takes it.
    """
    tenants = Tenant.objects.select_related("plan")
    if slug:
        found = tenants.filter(slug=slug).first()
        if found is None:
            known = ", ".join(Tenant.objects.values_list("slug", flat=True)[:20]) or "none yet"
            raise errors.NotFound(f"there is no tenant {slug!r}; known are: {known}", field=field)
        return found
    some = list(tenants.exclude(slug="demo-free")[:2])
    if not some:
        raise errors.NotFound("there is no tenant yet; make one with: manage.py create_tenant SLUG", field="--tenant")
    if len(some) > 1:
        known = ", ".join(Tenant.objects.values_list("slug", flat=True)[:20])
        raise errors.InvalidInput(f"say which tenant: {known}", field="--tenant")
    return some[0]


def tenant_or_all(slug: str | None) -> Tenant | None:
    """The tenant of that slug, or the only one there is; else the whole platform is meant."""
    if slug:
        return find_tenant(slug)
    some = list(Tenant.objects.select_related("plan")[:2])
    return some[0] if len(some) == 1 else None


def _seconds(value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = 0.0
    if not 0.1 <= found <= 3_600:
        raise argparse.ArgumentTypeError(f"{value!r} is no number of seconds from 0.1 to 3600")
    return found


def ago(seconds: float | None) -> str:
    """A duration in few letters: 19 min."""
    if seconds is None:
        return "–"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def scoped(tenant: Tenant) -> AbstractContextManager[None]:
    """Work as this tenant."""
    return tenant_scope(tenant.pk)


def task_id(value: str) -> uuid.UUID:
    """An argument as a task id."""
    try:
        return uuid.UUID(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is no id; it looks like {uuid.UUID(int=0)}") from None


def parse_json(value: str, field: str) -> Any:
    """An argument as JSON; ``InvalidInput`` says what is wrong with it."""
    try:
        return json.loads(value)
    except ValueError as error:
        raise errors.InvalidInput(f"is not JSON: {error}", field=field) from None


ACTOR = "command"
"""How history names what a command did."""
