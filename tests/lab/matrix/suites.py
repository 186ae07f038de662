"""Test suites of others, from the registry: of ``django.tasks``, and of packages whose Celery tasks become durable."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.lab.matrix.sources import said, uv

PATIENCE: Final = 1200.0
COUNTS: Final = re.compile(r"(\d+) (passed|skipped)")
TOOLS: Final = ("pytest>=9", "pytest-django")
SETTINGS: Final = """
import os
from psycopg.conninfo import conninfo_to_dict
import slackwater

SECRET_KEY, USE_TZ, DATABASES, INSTALLED_APPS = "only tests", True, {{}}, []
{own}
_database = conninfo_to_dict(os.environ["LEDGER"])
DATABASES["default"] = {{
    "ENGINE": "django.db.backends.postgresql", "NAME": _database.pop("dbname"), "OPTIONS": _database,
}}
_more = ["django.contrib.auth", "django.contrib.contenttypes", "django_celery_beat", *slackwater.DJANGO_APPS]
INSTALLED_APPS = list(dict.fromkeys([*INSTALLED_APPS, *_more]))
SLACKWATER = {{"DURABLE": ["*"], "TENANT": "tests", "REDIS_URL": "redis://127.0.0.1:1/0"}}
"""
# Nothing is there that Celery could publish to: what is not run by the ledger fails.
AT_ONCE: Final = """
import os
from contextlib import suppress

import pytest
from celery import current_app
from celery.signals import task_postrun
from django.test import TransactionTestCase
import slackwater

current_app.conf.broker_url = "memory://"


@task_postrun.connect
def ran(task=None, **_):
    with suppress(LookupError):
        slackwater.current()
        with open(os.environ["DIARY"], "a") as diary:
            print(task.name, file=diary)


@pytest.fixture(autouse=True)
def at_once(request, settings):
    settings.EMAIL_BACKEND = getattr(settings, "MOVED_EMAIL", settings.EMAIL_BACKEND)  # pytest-django has set another
    if request.cls is None or issubclass(request.cls, TransactionTestCase):
        request.getfixturevalue("slackwater_eager")
"""
INTERFACE: Final = """
from importlib import import_module

import django
import pytest
from django.test import TestCase, override_settings
from slackwater.django_tasks import SlackwaterBackend

name = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
exceptions = import_module(f"{name}.exceptions")
for new, old in ("InvalidTask", "InvalidTaskError"), ("InvalidTaskBackend", "InvalidTaskBackendError"):
    if not hasattr(exceptions, new):  # django-tasks 0.12 has them by their old names
        setattr(exceptions, new, getattr(exceptions, old))
theirs = import_module("tasks.test_tasks")
theirs.DummyBackend = SlackwaterBackend


class Asked(SlackwaterBackend):
    "With what the dummy has for tests: what was enqueued."

    @property
    def results(self):
        return self.had

    def enqueue(self, task, args, kwargs):
        self.had.append(super().enqueue(task, args, kwargs))
        return self.had[-1]

    def clear(self):
        self.had = []


@override_settings(USE_TZ=True, TASKS={
    "default": {"BACKEND": "test_interface.Asked", "QUEUES": ["default", "queue_1"]},
    "immediate": {"BACKEND": f"{name}.backends.immediate.ImmediateBackend", "QUEUES": []},
    "missing": {"BACKEND": "does.not.exist"},
})
class TestOnSlackwater(TestCase):
    locals().update({n: f for n, f in vars(theirs.TaskTestCase).items() if n.startswith("test_") or n == "setUp"})

    @pytest.fixture(autouse=True)
    def inbox(self, slackwater_inbox):
        pass
"""


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a suite that passed."""

    passed: int
    skipped: int
    ran: Counter[str]
    """Its tasks, as the ledger ran them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The tests that come with a package's source, and what is changed so that they meet Slackwater."""

    package: str
    version: str
    tests: tuple[str, ...]
    """What pytest is given."""
    passes: int = 0
    ran: Mapping[str, int] = field(default_factory=dict)
    """How often the ledger ran which of its tasks."""
    settings: str = ""
    """The package's own, in lines of a settings file."""
    needs: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """What is added."""
    edits: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """What is replaced in which file."""
    only: str = ""
    """What alone is unpacked of it; the package itself is then not what is tested."""

    def unpacked(self, folder: Path) -> Path:
        """Its source, as the registry has it, with what is added and changed."""
        name = f"{self.package}=={self.version}"
        words = ("download", "-q", "--no-deps", "--python-version", "3.14", "--no-binary", ":all:", "-d", str(folder))
        said(sys.executable, "-m", "pip", *words, name)
        (packed,) = folder.glob("*.tar.gz")
        with tarfile.open(packed) as source:
            members = [member for member in source.getmembers() if self.only in member.name]
            source.extractall(folder, members, filter="data")
        root = folder / packed.name.removesuffix(".tar.gz")
        for place, edits in self.edits.items():
            text = (root / place).read_text()
            for old, new in edits:
                assert old in text, f"{place} of {name} has no {old!r}"
                text = text.replace(old, new)
            (root / place).write_text(text)
        settings = {"moved_settings.py": SETTINGS.format(own=self.settings)}
        for place, text in {**settings, **self.files}.items():
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            (root / place).write_text(text)
        return root

    def run(self, programs: Path, folder: Path, database_url: str) -> Found:
        """Install and run it with the programs of an environment; ``AssertionError`` where a test fails."""
        root, diary = self.unpacked(folder), folder / "ran"
        wanted = (*TOOLS, *self.needs, *(() if self.only else (str(root),)))
        said(uv(), "pip", "install", "-q", *wanted, env={**os.environ, "VIRTUAL_ENV": str(programs.parent)})
        words = ("-q", "-p", "no:cacheprovider", "--tb=short", "-c", os.devnull, f"--rootdir={root}")
        env = {
            **os.environ, "LEDGER": database_url, "DIARY": str(diary), "DJANGO_SETTINGS_MODULE": "moved_settings",
            "PYTHONPATH": f"{root}:{root / 'tests'}" if self.only else str(root),
        }  # fmt: skip
        done = subprocess.run([str(programs / "python"), "-m", "pytest", *words, *self.tests], env=env, cwd=root,
                              capture_output=True, text=True, check=False, timeout=PATIENCE)  # fmt: skip
        assert done.returncode == 0, (
            f"{self.package} {self.version}\n{done.stdout[:4000] + done.stdout[-6000:]}{done.stderr[-3000:]}"
        )
        counts = Counter({word: int(number) for number, word in COUNTS.findall(done.stdout.splitlines()[-1])})
        ran = Counter(diary.read_text().splitlines() if diary.exists() else ())
        return Found(counts["passed"], counts["skipped"], ran)


def interface(django: str) -> Suite:
    """What Django tests of ``django.tasks``, on its backport where the Django is older: it has the same tests.

    One of them refreshes inside of a coroutine without awaiting it, which Django refuses whoever asks a database.
    """
    old = () if django.startswith("6.") else (("django.tasks", "django_tasks"),)
    awaited = (
        "        result.refresh()\n\n        self.assertEqual(dataclasses.asdict(result), original_result)\n\n        await",
        "        await import_string('asgiref.sync.sync_to_async')(result.refresh)()\n        await",
    )
    return Suite(
        package="Django", version=django if not old else LATEST, tests=("test_interface.py",), passes=34, only="/tests/tasks/",
        needs=() if not old else ("django-tasks>=0.12,<0.13",),
        files={"test_interface.py": INTERFACE},
        edits={"tests/tasks/tasks.py": old, "tests/tasks/test_tasks.py": (*old, awaited)},
    )  # fmt: skip


LATEST: Final = "6.0.10"
EXPLORER: Final = """
STATIC_URL, ROOT_URLCONF = "/static/", "moved_urls"
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
    "OPTIONS": {"context_processors": [f"django.{name}" for name in (
        "template.context_processors.request", "contrib.auth.context_processors.auth",
        "contrib.messages.context_processors.messages", "template.context_processors.static",
    )]},
}]
INSTALLED_APPS = [f"django.contrib.{name}" for name in (
    "auth", "contenttypes", "sessions", "messages", "staticfiles", "admin",
)] + ["explorer"]
MIDDLEWARE = [f"django.{name}Middleware" for name in (
    "contrib.sessions.middleware.Session", "middleware.common.Common", "middleware.csrf.CsrfView",
    "contrib.auth.middleware.Authentication", "contrib.messages.middleware.Message",
)]
DATABASES = {name: {"ENGINE": "django.db.backends.sqlite3", "NAME": name} for name in ("alt", "not_registered")}
EXPLORER_CONNECTIONS = {"SQLite": "default", "Another": "alt"}
EXPLORER_DEFAULT_CONNECTION = "default"
EXPLORER_ENABLE_ANONYMOUS_STATS, EXPLORER_TASKS_ENABLED, TEST_MODE = False, True, True
EXPLORER_AI_API_KEY = "foo"
DATABASE_ROUTERS = ["moved_urls.Router"]
"""
EXPLORER_URLS: Final = """
from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("explorer/", include("explorer.urls")), path("admin/", admin.site.urls)]


class Router:
    def allow_migrate(self, db, app_label, **hints):
        return None if db == "default" else False
"""
# As the package's README tells users to write theirs: of its tests' own tasks only the names are in its source.
UTILS_TASKS: Final = """
from celery import shared_task
from celery_utils.logged_task import LoggedTask
from celery_utils.persist_on_failure import PersistOnFailureTask


@shared_task(base=PersistOnFailureTask)
def fallible_task(message=None):
    if message is not None:
        raise ValueError(message)


@shared_task(base=PersistOnFailureTask)
def passing_task():
    return "passed"


@shared_task(base=LoggedTask)
def simple_logged_task(a, b, c):
    return a + b + c


@shared_task(base=LoggedTask)
def failed_logged_task():
    raise ValueError("it always fails")
"""
SUITES: Final = (
    Suite(
        package="django-celery-email", version="3.0.0", tests=("tests/tests.py",), passes=25,
        ran={"djcelery_email_send_multiple": 8},
        settings='from tests.settings import *\nMOVED_EMAIL = "djcelery_email.backends.CeleryEmailBackend"',
        # Celery's eager mode would pass the ledger by.
        edits={"tests/tests.py": (("task_always_eager = True", "task_always_eager = False"),)},
        files={"conftest.py": AT_ONCE, "tests/image.png": "GIF89a"},  # its source comes without the picture
    ),
    Suite(
        package="django-sql-explorer", version="5.3.1", passes=57,
        tests=tuple(f"explorer/tests/test_{name}.py" for name in ("tasks", "actions", "forms", "utils")),
        ran={"explorer.tasks.snapshot_query": 3},
        settings=EXPLORER, needs=("factory-boy",),
        files={"conftest.py": AT_ONCE, "moved_urls.py": EXPLORER_URLS},
    ),
    Suite(
        package="edx-celeryutils", version="2.0.0", passes=11,
        # These name the id of the task they call, which is refused: "task_id" in docs/reference/celery-options.md.
        tests=("tests", "celery_utils", *(f"--deselect={test}" for test in (
            "tests/test_logged_task.py::test_no_failure",
            "tests/test_persist_on_failure.py::test_cannot_reapply_resolved_task",
            "celery_utils/management/commands/tests/test_reapply_tasks.py",
        ))),
        ran={"test_utils.tasks.fallible_task": 4, "test_utils.tasks.failed_logged_task": 1},
        settings='INSTALLED_APPS = ["celery_utils"]',
        # "retry" is an argument of Celery's eager results alone.
        edits={"tests/test_logged_task.py": (("result.wait(retry=False)", "result.wait()"),)},
        files={"conftest.py": AT_ONCE, "test_utils/__init__.py": "", "test_utils/tasks.py": UTILS_TASKS},
    ),
)  # fmt: skip
