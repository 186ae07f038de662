"""What an operator's commands load: start-up is nearly all that each of them costs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from slackwater.settings.place import ROOT

FOR_ACTS_ALONE = ("slackwater_tasks.control", "slackwater_tasks.submission.service", "rich", "httpx", "celery")
LOADED = """
import importlib, sys
import django
django.setup()
importlib.import_module("slackwater.management.commands." + sys.argv[1])
print([name for name in sys.argv[2:] if name in sys.modules])
"""


@pytest.mark.parametrize("command", ["status", "dead_letters", "nodes", "workflows", "tenants", "top"])
def test_a_list_loads_nothing_that_only_acts_need(command: str) -> None:
    path = os.pathsep.join([str(ROOT / "platform"), str(ROOT / "apps"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", LOADED, command, *FOR_ACTS_ALONE],
        env={**os.environ, "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "slackwater.settings.test"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
