"""The example projects, moved by the steps of the documentation, each in an environment of its own from the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, LiteralString

import psycopg

from slackwater.local.process import start, stop
from tests.lab.matrix.sources import said, uv
from tests.support.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[3]
PATIENCE: Final = 1200.0
MOST_LINES: Final = 5
STARTS: Final = """
SELECT t.handler, count(*) FROM slackwater_tasks_attempt a JOIN slackwater_tasks_task t ON t.id = a.task_id GROUP BY 1
"""
ERRORS: Final = """
SELECT t.handler, a.error FROM slackwater_tasks_attempt a JOIN slackwater_tasks_task t ON t.id = a.task_id
WHERE a.error <> '' ORDER BY a.started_at LIMIT 20
"""
LEFT: Final = "SELECT count(*) FROM slackwater_tasks_livetask"
SHOP_STORY: Final = """
from django.db import transaction
from django.utils import timezone
from apps.orders import tasks
from apps.orders.models import Order
from apps.people.models import User

order = Order.objects.create(buyer=User.objects.create(username="ann"), total="9.90")
order.refresh_from_db()
try:
    with transaction.atomic():
        tasks.mail.delay(order.pk, "never")
        raise LookupError("taken back")
except LookupError:
    pass
with transaction.atomic():
    tasks.mail.delay_on_commit(order.pk, "committed")
    whole = tasks.process(order.pk, order.total, timezone.now())
assert sorted(whole.get(timeout=1100)) == ["9.90", "order"], whole.result
try:
    tasks.refuse.delay(order.pk).get(timeout=1100)
except ValueError as error:
    print("refused:", error)
"""
LETTERS_STORY: Final = """
from letters import celery, tasks

assert tasks.write("ann").get(timeout=1100) == [1, 2]
try:
    tasks.lose.delay("bob").get(timeout=1100)
except LookupError as error:
    print("lost:", error)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A project below ``examples/``, and what moving it means."""

    name: str
    file: str
    """The one file that changes."""
    above: str
    """The line below which the import stands."""
    lines: str
    """What stands at the end."""
    manage: tuple[str, ...]
    """How the documentation calls a command of the platform."""
    story: tuple[str, ...]
    durable: Mapping[str, int]
    """How often each task runs, by the ledger."""
    ran: Mapping[str, int]
    """The same as the tasks themselves write it down, with those that stay messages."""
    beaten: tuple[str, str]
    """What beat starts: the task, and its line."""


SHOP: Final = Example(
    name="shop",
    file="shop/settings.py",
    above="import os\n",
    lines=(
        "INSTALLED_APPS += slackwater.DJANGO_APPS\n"
        'SLACKWATER = {"DURABLE": ["orders.*"], "TENANT": "acme", "REDIS_URL": CELERY_BROKER_URL}\n'
    ),
    manage=("python", "manage.py"),
    story=("python", "manage.py", "shell", "-c", SHOP_STORY),
    durable={"orders.charge": 2, "orders.ship": 2, "orders.mail": 3, "orders.settle": 1, "orders.refuse": 1},
    ran={
        "charge": 2, "told": 1, "ship": 2, "mail order": 1, "mail committed": 1, "mail thanks": 1, "refuse": 1, "log": 1,
    },
    beaten=("orders.count_stock", "stock"),
)  # fmt: skip
LETTERS: Final = Example(
    name="letters",
    file="letters/celery.py",
    above="import os\n",
    lines=(
        'slackwater.install(app, database_url=os.environ["LEDGER"], key=os.environ["LEDGER_KEY"], tenant="acme",\n'
        '                   durable=["letters.*"])\n'
    ),
    manage=("slackwater", "manage"),
    story=("python", "-c", LETTERS_STORY),
    durable={"letters.print": 3, "letters.fold": 2, "letters.close": 1, "letters.stamp": 1, "letters.lose": 1},
    ran={"print 1": 3, "fold 2": 2, "close ann": 1, "stamp ann": 1, "lose bob": 1, "tell ann": 1},
    beaten=("letters.sweep", "sweep"),
)  # fmt: skip
EXAMPLES: Final = (SHOP, LETTERS)


def built_wheel(folder: Path) -> Path:
    """Build from a copy: what a build leaves behind is not for the project's folder."""
    for name in ("apps", "platform", "scheduler_ext"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "tests" / "lab", folder / "tests" / "lab")  # there to be left out
    build = "import setuptools.build_meta as build; build.build_wheel('dist')"
    said(sys.executable, "-W", "ignore", "-c", build, cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def environment(folder: Path, python: Path, wheel: Path, pins: Iterable[str] = ()) -> Path:
    """A fresh environment with the wheel and all it asks for, from the registry; returns its programs' folder."""
    said(uv(), "venv", "-q", "--no-python-downloads", "--python", str(python), str(folder))
    said(uv(), "pip", "install", "-q", f"slackwater[server] @ file://{wheel}", *pins,
         env={**os.environ, "VIRTUAL_ENV": str(folder)})  # fmt: skip
    return folder / "bin"


class Moved:
    """An example in a folder of its own: moved, migrated, run and counted."""

    def __init__(self, example: Example, folder: Path, programs: Path, *, database_url: str, redis_url: str) -> None:
        """Copy it and put it under version control, as it is before the move."""
        self.example, self.database_url = example, database_url
        self.folder = folder / example.name
        self.diary = folder / f"{example.name}.diary"
        self.logs = folder
        shutil.copytree(ROOT / "examples" / example.name, self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        self.env = {
            "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder), "PYTHONWARNINGS": "ignore", "LANG": "C.UTF-8",
            "SHOP_DATABASE": database_url, "SHOP_REDIS": redis_url, "SHOP_DIARY": str(self.diary), "SHOP_STOCK_S": "2",
            "LETTERS_REDIS": redis_url, "LETTERS_BOOK": str(self.diary), "LETTERS_SWEEP_S": "2",
            "LEDGER": database_url, "LEDGER_KEY": "the key of the platform, as long as one should be, and of no other",
        }  # fmt: skip
        self.service = self.env if example is SHOP else {
            **self.env, "SLACKWATER_DATABASE_URL": database_url, "SLACKWATER_REDIS_URL": redis_url,
            "SLACKWATER_SECRET_KEY": self.env["LEDGER_KEY"],
        }  # fmt: skip
        self._git("init", "-q")
        self._git("add", "-A")
        self._git(
            "-c", "user.name=example", "-c", "user.email=example@localhost", "commit", "-q", "-m", "Before the move"
        )

    def move(self) -> str:
        """Add the documented lines; returns ``git diff``, which has five at most."""
        path = self.folder / self.example.file
        before = path.read_text()
        assert self.example.above in before
        imported = before.replace(self.example.above, f"{self.example.above}import slackwater\n", 1)
        path.write_text(imported + self.example.lines)
        added, removed, _ = self._git("diff", "--numstat").split(maxsplit=2)
        assert int(added) <= MOST_LINES, f"the move is {added} lines"
        assert removed == "0", "nothing is taken away"
        return self._git("diff", "--unified=1")

    def prepare(self) -> None:
        """The documented commands that are given once."""
        manage = self.example.manage
        self._run(*manage, "check", env=self.service)
        self._run(*manage, "migrate", "-v", "0", env=self.service)
        self._run(*manage, "create_tenant", "acme", env=self.service)

    def run(self) -> None:
        """Start the platform and the project's own worker and beat, tell the story, stop when nothing is left."""
        manage, name = self.example.manage, self.example.name
        celery = ("celery", "-A", name)
        running = {
            "dispatcher": self._start("dispatcher", *manage, "run_dispatcher", env=self.service),
            "upkeep": self._start("upkeep", *manage, "run_upkeep", env=self.service),
            "worker": self._start("worker", *celery, "worker", "-l", "INFO", "-c", "2", env=self.env),
            "beat": self._start("beat", *celery, "beat", "-s", str(self.logs / f"{name}.beat"), env=self.env),
        }
        try:
            self._run(*self.example.story, env=self.env)
            wait_until(lambda: self.runs()[self.example.beaten[1]] > 0, timeout=PATIENCE, message="beat has called")
            stop([running.pop("beat")], timeout=60)
            wait_until(lambda: self._asked(LEFT) == [(0,)], timeout=PATIENCE, message="nothing is left in the ledger")
            wanted = sum(self.example.ran.values()) + self.ledger()[self.example.beaten[0]]
            wait_until(lambda: self.runs().total() >= wanted, timeout=PATIENCE, message="all has been written down")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None
        finally:
            stop(running.values(), timeout=60)

    def check(self) -> None:
        """Each task ran as often as it says, by the ledger and by what it wrote down itself."""
        task, line = self.example.beaten
        ledger, ran = self.ledger(), self.runs()
        assert ledger[task] == ran[line] > 0
        assert ledger == {**self.example.durable, task: ledger[task]}, ledger
        assert ran == {**self.example.ran, line: ran[line]}, ran

    def ledger(self) -> Counter[str]:
        """Attempts by task."""
        return Counter(dict(self._asked(STARTS)))

    def runs(self) -> Counter[str]:
        """Lines of the tasks' own record."""
        return Counter(self.diary.read_text().splitlines() if self.diary.exists() else ())

    def said(self) -> str:
        """The ends of what its processes said, and the errors of its attempts."""
        logs = sorted(self.logs.glob(f"{self.example.name}-*.log"))
        said = [f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs]
        return "\n".join(said + [f"--- {handler}\n{error[-800:]}" for handler, error in self._asked(ERRORS)])

    def _asked(self, query: LiteralString) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database_url) as conn:
            return conn.execute(query).fetchall()

    def _start(self, part: str, *command: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self._log(part) as log:
            return start(self._found(command), env=env, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT)

    def _run(self, *command: str, env: Mapping[str, str]) -> None:
        with self._log("commands") as log:
            done = subprocess.run(self._found(command), env=env, cwd=self.folder, stdout=log, stderr=log, check=False,
                                  timeout=PATIENCE)  # fmt: skip
        assert done.returncode == 0, f"{' '.join(command)[:60]} … failed"

    def _found(self, command: tuple[str, ...]) -> list[str]:
        return [shutil.which(command[0], path=self.env["PATH"]) or command[0], *command[1:]]

    def _log(self, part: str) -> IO[bytes]:
        return (self.logs / f"{self.example.name}-{part}.log").open("ab")

    def _git(self, *words: str) -> str:
        return said("git", *words, cwd=self.folder)
