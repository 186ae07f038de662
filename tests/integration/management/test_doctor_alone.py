"""The doctor, called in a project's folder without a word of its settings, as `celery -A` may be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slackwater.settings.place import ROOT

CELERY = """
import os
from celery import Celery
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
"""
SETTINGS = """
from slackwater.settings.test import *
INSTALLED_APPS = [*INSTALLED_APPS, "orders"]
CELERY_TASK_IGNORE_RESULT = False
"""
TASKS = """
from celery import shared_task
@shared_task
def mail(number): ...
@shared_task(max_retries=1000)
def forever(): ...
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A Django project with Slackwater's apps, whose Celery application names its settings."""
    for name, text in {
        "shop/__init__.py": "",
        "shop/celery.py": CELERY,
        "shop/settings.py": SETTINGS,
        "orders/__init__.py": "",
        "orders/tasks.py": TASKS,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def slackwater(folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit code and what is said by the installed program: the folder is not on its path."""
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    env["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "platform", ROOT / "apps")))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "slackwater", *words], cwd=folder, env=env,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("named", ["shop.celery", "shop", "shop.celery:app"])
def test_the_settings_that_the_application_names_hold(project: Path, named: str) -> None:
    code, said, _ = slackwater(project, "doctor", "--task", "orders.*", "--all", named)
    assert code == 1
    assert "orders.tasks.forever" in said
    assert "1 carries over, 0 changes, 1 refused" in said


def test_where_no_task_is_found_there_is_no_all_clear(project: Path) -> None:
    code, said, complained = slackwater(project, "doctor", "shop.celery", "--task", "order.*")
    assert code
    assert "Nothing changes" not in said
    assert "--task: no task of the app was found" in complained
    (project / "alone.py").write_text("from celery import Celery\napp = Celery('alone')\n")
    code, said, complained = slackwater(project, "doctor", "alone")
    assert code
    assert "Nothing changes" not in said
    assert "app: no task of the app was found" in complained


def test_settings_without_our_apps_are_named(project: Path) -> None:
    (project / "shop" / "settings.py").write_text("SECRET_KEY = 'x'\nINSTALLED_APPS = ['orders']\n")
    code, _, complained = slackwater(project, "doctor", "shop.celery")
    assert (code, complained) == (
        1, "slackwater: shop.settings: INSTALLED_APPS lacks *slackwater.DJANGO_APPS, which doctor needs\n",
    )  # fmt: skip
