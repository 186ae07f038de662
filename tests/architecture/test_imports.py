"""What a process loads at its start: imports were most of the start of each, and come back unseen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = {"celery", "kombu", "redis"}
SITE = {"unfold", "rest_framework", "drf_spectacular", "slackwater_api", "jsonschema", "jsonschema_rs"}

LOAD = """
import json, sys
sys.argv = json.loads(sys.argv[1])
{code}
print(json.dumps(sorted(sys.modules)))
"""
SET_UP = "import django; django.setup(); "


def loaded(argv: list[str], code: str) -> set[str]:
    """The modules of a fresh interpreter after ``code``."""
    # Without the servers of this run: a database's URL is read by psycopg.
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLACKWATER_")}
    env["DJANGO_SETTINGS_MODULE"] = "slackwater.settings.test"
    env["PYTHONPATH"] = os.pathsep.join(str(ROOT / folder) for folder in (".", "platform", "apps"))
    done = subprocess.run(
        [sys.executable, "-c", LOAD.format(code=code), json.dumps(argv)],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("argv", "code", "absent", "most"),
    [
        (["slackwater", "status"], "from slackwater.cli import command; assert command.main(['status', '--url', 'x']) == 2",
         CLIENTS | SITE | {"django", "psycopg", "rich", "click", "pygments"}, 400),
        ([""], "import slackwater.settings.test", CLIENTS | SITE | {"psycopg", "structlog"}, 230),
        (["manage.py", "status"], SET_UP + "import slackwater.management.commands.status", CLIENTS | SITE, 830),
        (["manage.py", "run_dispatcher"], SET_UP + "import slackwater.management.commands.run_dispatcher",
         {"celery", "kombu", "redis.asyncio", "rich"} | SITE, 830),
        (["manage.py", "run_upkeep"], SET_UP + "import slackwater.management.commands.run_upkeep", SITE, 930),
        (["celery", "worker"], "import slackwater.celery", SITE | {"django_celery_beat"}, 1270),
        (["manage.py", "create_demo"], SET_UP + "import slackwater.management.commands.create_demo", SITE, 960),
    ],
    ids=["tenant", "settings", "status", "dispatcher", "upkeep", "worker", "create_demo"],
)  # fmt: skip
def test_a_process_loads_what_it_needs(argv: list[str], code: str, absent: set[str], most: int) -> None:
    modules = loaded(argv, code)
    assert modules & absent == set()
    assert len(modules) <= most


def test_what_prepares_the_database_knows_every_table() -> None:
    """It loads no pages; the tables and permissions that it makes are those of the processes that do."""
    told = SET_UP + "assert not {'jsonschema', 'jsonschema_rs'} & sys.modules.keys(); from django.apps import apps; "
    told += "sys.modules = {model._meta.label: 1 for model in apps.get_models()}"
    assert loaded(["manage.py", "create_demo"], told) == loaded(["manage.py", "runserver"], told) > {"admin.LogEntry"}
