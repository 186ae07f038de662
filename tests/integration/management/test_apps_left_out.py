"""A project that left out an app which Slackwater's pages in the admin are made of is told which."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slackwater.settings.place import ROOT

SETTINGS = """
import slackwater
SECRET_KEY = "x"
DATABASES = {{"default": {{"ENGINE": "django.db.backends.postgresql", "NAME": "none"}}}}
INSTALLED_APPS = [
    "unfold", "unfold.contrib.filters", {admin!r}, "django.contrib.auth", "django.contrib.contenttypes",
    "django.contrib.sessions", "django.contrib.messages", "django_celery_beat", *slackwater.DJANGO_APPS,
]
INSTALLED_APPS = [name for name in INSTALLED_APPS if name not in {left_out!r}]
"""
BEAT, UNFOLD = ["django_celery_beat"], ["unfold", "unfold.contrib.filters"]


def set_up(
    folder: Path, left_out: list[str], admin: str = "django.contrib.admin", then: str = ""
) -> subprocess.CompletedProcess[str]:
    """Django's start in a project without these apps."""
    (folder / "left_out.py").write_text(SETTINGS.format(left_out=left_out, admin=admin))
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "left_out"}
    env["PYTHONPATH"] = os.pathsep.join(map(str, (folder, ROOT, ROOT / "platform", ROOT / "apps")))
    return subprocess.run(
        [sys.executable, "-c", f"import django; django.setup(){then}"], cwd=folder, env=env, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("left_out", [BEAT, [*UNFOLD, *BEAT]])
def test_who_left_out_what_pages_import_is_told(tmp_path: Path, left_out: list[str]) -> None:
    done = set_up(tmp_path, left_out)
    said = done.stderr.splitlines()[-1]
    assert said.startswith("django.core.exceptions.ImproperlyConfigured: INSTALLED_APPS lacks 'django_celery_beat'")
    assert "SolarSchedule" not in done.stderr


def test_who_left_out_what_pages_are_shown_by_is_told_by_the_check(tmp_path: Path) -> None:
    """Such a project starts: it may show none of them."""
    check = "; from slackwater.apps import check_pages; print(*(f'{one.id} {one.msg}' for one in check_pages()))"
    done = set_up(tmp_path, UNFOLD, then=check)
    assert done.stdout.startswith("slackwater.W006 INSTALLED_APPS lacks 'unfold', 'unfold.contrib.filters'"), (
        done.stderr
    )
    assert set_up(tmp_path, [], then=check).stdout.strip() == ""
    assert set_up(tmp_path, UNFOLD, "django.contrib.admin.apps.SimpleAdminConfig", check).stdout.strip() == ""


@pytest.mark.parametrize(("left_out", "admin"), [
    ([], "django.contrib.admin"), ([*UNFOLD, *BEAT], "django.contrib.admin.apps.SimpleAdminConfig"),
    ([*UNFOLD, *BEAT, "django.contrib.admin"], "django.contrib.admin"),
])  # fmt: skip
def test_where_no_page_is_looked_for_none_is_needed(tmp_path: Path, left_out: list[str], admin: str) -> None:
    done = set_up(tmp_path, left_out, admin)
    assert done.returncode == 0, done.stderr
