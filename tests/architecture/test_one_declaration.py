"""A new field of a task is one line of the specification and a column with its migration; every surface follows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DECLARATION = '''    colour: str = given(Choice(Colour), Colour.RED, group=NEEDS, help="Its colour.")
    """A colour."""
'''
ENUM = "\n\nclass Colour(IntEnum):\n    RED = 1\n    DARK_BLUE = 2\n\n"
COLUMN = "    colour = models.SmallIntegerField(default=1, db_default=1)\n"
PROBE = """
import json, sys
import django
django.setup()
from argparse import ArgumentParser
from django.core.management import call_command
from slackwater.management.commands.submit import Command
from slackwater_api.http.reference import document
from slackwater_tasks.admin import task_form
from slackwater_tasks.read import tasks
from slackwater_tasks.spec import COLUMNS, FIELDS, parse_task
from tests.lab.reference import task_fields
from tests.support.fuzzing import Bodies

call_command("makemigrations", "slackwater_tasks", name="colour", verbosity=0)
components = json.loads(json.dumps(document(), default=str))["components"]["schemas"]
field = FIELDS["colour"]
refusal = ""
try:
    parse_task({"handler": "x", "colour": "green"})
except Exception as error:
    refusal = f"{error.field}: {error}"
print(json.dumps({
    "parsed": parse_task({"handler": "x", "colour": "dark_blue"}).colour,
    "refused": refusal,
    "schemas": sorted(name for name, schema in components.items() if "colour" in schema.get("properties", {})),
    "form": {str(editing): "colour" in str(task_form.fieldsets(editing=editing)) for editing in (True, False)},
    "choices": task_form.input_of(field).choices,
    "flag": Command().create_parser("manage.py", "submit").format_help().count("--colour"),
    "read": "t.colour" in tasks.TASK,
    "shown": tasks.declared({"colour": 2}, {"colour": field}),
    "stored": ["colour" in COLUMNS, field.kind.stored(parse_task({"handler": "x"}).colour)],
    "page": "`--colour`" in task_fields.render(),
    "fuzzed": Bodies(1).good("colour") in field.kind.words,
}))
"""


def grown(folder: Path) -> Path:
    """A copy of the apps, compiled as they are, with one line more in the specification and a column in the table of tasks."""
    apps = folder / "apps"
    shutil.copytree(ROOT / "apps", apps, ignore=shutil.ignore_patterns("*.pyc.*", "static", "templates"))
    spec, model = apps / "slackwater_tasks/spec.py", apps / "slackwater_tasks/models/task.py"
    text = spec.read_text().replace("\n\n@dataclass(", "\n\nfrom enum import IntEnum" + ENUM + "\n@dataclass(", 1)
    spec.write_text(text.replace("    payload: tuple", DECLARATION + "    payload: tuple", 1))
    model.write_text(
        model.read_text().replace("    # From here on: written when", COLUMN + "    # From here on: written when", 1)
    )
    return apps


def test_a_new_field_touches_the_declaration_and_a_column_and_is_everywhere(tmp_path: Path) -> None:
    apps = grown(tmp_path)
    path = os.pathsep.join(map(str, (apps, ROOT / "platform", ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "slackwater.settings.test"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROBE], cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        "parsed": 2,
        "refused": "colour: colour: must be one of red, dark_blue",
        "schemas": [
            "PatchedTaskChange",
            "ScheduledTask",
            "ScheduledTaskAmong",
            "TaskAmong",
            "TaskAnew",
            "TaskDetail",
            "TaskIn",
            "TaskRerun",
        ],
        "form": {"True": True, "False": True},
        "choices": [["red", "red"], ["dark_blue", "dark blue"]],
        "flag": 2,
        "read": True,
        "shown": {"colour": "dark_blue"},
        "stored": [True, 1],
        "page": True,
        "fuzzed": True,
    }
    made = list((apps / "slackwater_tasks/migrations").glob("*_colour.py"))
    assert len(made) == 1
    assert made[0].read_text().count("migrations.AddField") == 1
