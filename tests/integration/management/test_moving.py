"""A Celery project is examined before it moves, and its periodic tasks are taken along."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.schedules import schedule
from django.core.management import CommandError, call_command
from django.utils import timezone
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule

from scheduler_ext.core.errors import InvalidInput
from slackwater.moving import beat
from slackwater_resources.models import Handler
from slackwater_schedules.models import Schedule
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant
from tests.support import shop
from tests.support.api import furnish

pytestmark = pytest.mark.django_db
APP = "tests.support.shop:app"
UNREAD = "cannot be read as JSON of its kind; beat cannot send it either"


@pytest.fixture(autouse=True)
def acme() -> Tenant:
    """The only tenant; workers have exported two of the shop's tasks."""
    furnish()
    for name in ("shop.mail", "shop.plain"):
        Handler.objects.create(name=name)
    return create_tenant("acme", "Acme")


def run(*arguments: str) -> tuple[int, str]:
    """The exit code of a command, and what it prints."""
    out, code = StringIO(), 0
    try:
        call_command(*arguments, stdout=out, stderr=StringIO())
    except SystemExit as end:
        code = int(end.code or 0)
    return code, out.getvalue()


def examine(*arguments: str) -> dict[str, Any]:
    """What the doctor says as JSON."""
    code, said = run("doctor", APP, shop.__file__, "--task", "shop.*", "--json", *arguments)
    assert code == 1
    found: dict[str, Any] = json.loads(said)
    return found


def test_the_doctor_says_of_each_what_becomes_of_it() -> None:
    told = examine()
    said = {(f["kind"], f["subject"], f["option"]): f["verdict"] for f in told["findings"]}
    assert said == {
        ("task", "shop.forever", "max_retries"): "refused",
        ("task", "shop.mail", "max_retries"): "carries over",
        ("task", "shop.mail", "rate_limit"): "changes",
        ("task", "shop.mail", "acks_late"): "carries over",
        ("task", "shop.plain", ""): "carries over",
        ("call", "plain.delay()", ""): "carries over",
        ("call", "plain.apply_async()", "countdown"): "carries over",
        ("call", "plain.apply_async()", "queue"): "changes",
        ("call", "plain.apply_async()", "link_error"): "carries over",
        ("call", "plain.apply_async()", "task_id"): "refused",
        ("call", "plain.apply_async()", "**"): "changes",
        ("call", ".set()", "priority"): "carries over",
        ("call", "plain.map()", ""): "refused",
        ("call", "plain.subtask()", "task_id"): "refused",
        ("call", "app.send_task()", "colour"): "refused",
        ("call", "self.retry()", "queue"): "refused",
        ("beat", "each morning", ""): "carries over",
        ("beat", "each minute", ""): "carries over",
        ("beat", "weekdays", ""): "carries over",
        ("beat", "by name", "options.task_id"): "refused",
        ("beat", "with a link", "options.link"): "refused",
        ("beat", "gone", "task"): "refused",
        ("beat", "in a hurry", "schedule"): "refused",
        ("beat", "friday the 13th", "schedule"): "refused",
    }
    named = [f["where"] for f in told["findings"] if f["option"] == "task_id" and f["kind"] == "call"]
    assert len(named) == 3, "by its keyword, by its place, and of a signature"
    assert told["counts"]["refused"] == len([f for f in told["findings"] if f["verdict"] == "refused"])


def test_the_doctor_speaks_to_people_and_ends_with_a_code() -> None:
    code, said = run("doctor", APP, shop.__file__, "--task", "shop.*")
    assert code == 1
    assert "shop.forever" in said
    assert "must be from 0 to 99, not 1000" in said
    assert not re.search(r"^carries over", said, re.MULTILINE), "what goes on as it is is only counted"
    assert run("doctor", APP, "--task", "shop.*", shop.__file__) == (code, said), "in any order"
    code, said = run("doctor", APP, __file__, "--task", "shop.plain")
    assert (code, "in a hurry" in said) == (1, True)
    with pytest.raises(CommandError, match=r"app: cannot be loaded.*no_such_module"):
        run("doctor", "no_such_module:app")


MIXED = """
from celery import chain, chord, group
chain(plain.s(1), mail.s()).delay()
group(plain.s(1), chain(mail.s(), plain.s())).apply_async()
(plain.s(1) | mail.s()).delay()
plain.apply_async((1,), link=mail.s())
chord([plain.s(1)])(plain.s())
chain(mail.s(), mail.s())
plain.apply_async((1,), countdown=3)
"""


@pytest.mark.parametrize("said", ["--task", "DURABLE"])
def test_the_doctor_names_canvases_of_durable_and_ordinary_tasks(tmp_path: Path, settings: Any, said: str) -> None:
    (source := tmp_path / "calls.py").write_text(MIXED)
    if said == "DURABLE":
        settings.SLACKWATER = {**settings.SLACKWATER, "DURABLE": ["shop.plain"]}
    _, told = run("doctor", APP, str(source), "--json", *(["--task", "shop.plain"] if said == "--task" else []))
    found = [f for f in json.loads(told)["findings"] if "stored as a whole" in f["why"]]
    assert [(f["subject"], f["where"].rpartition(":")[2], f["verdict"]) for f in found] == [
        ("chain()", "3", "refused"), ("group()", "4", "refused"), ("a | b", "5", "refused"),
        ("apply_async()", "6", "refused"),
    ]  # fmt: skip
    assert {f["why"].partition(":")[0] for f in found} == {"plain would be durable and mail not"}


def test_periodic_tasks_become_schedules(acme: Tenant) -> None:
    ten, moment = timezone.now() + timedelta(days=10), timezone.now() + timedelta(days=1)
    PeriodicTask.objects.create(
        name="from a table", task="shop.mail", args="[7]", enabled=False, expires=ten, headers='{"a": "b"}',
        interval=IntervalSchedule.objects.create(every=2, period="hours"),
    )  # fmt: skip
    PeriodicTask.objects.create(
        name="one day", task="shop.plain", args="[1]", one_off=True,
        clocked=ClockedSchedule.objects.create(clocked_time=moment),
    )  # fmt: skip
    PeriodicTask.objects.create(
        name="in Tokyo", task="shop.plain", args="[1]",
        crontab=CrontabSchedule.objects.create(hour="3", timezone="Asia/Tokyo"),
    )  # fmt: skip
    PeriodicTask.objects.create(
        name="nobody's", task="shop.unknown",
        crontab=CrontabSchedule.objects.create(minute="5", timezone="Asia/Tokyo"),
    )  # fmt: skip

    PeriodicTask.objects.create(
        name="at sunset", task="shop.plain",
        solar=SolarSchedule.objects.create(event="sunset", latitude=52, longitude=13),
    )  # fmt: skip

    code, said = run("import_beat", APP, "--json")

    assert code == 1
    rows = {row["name"]: (row["outcome"], row["detail"]) for row in json.loads(said)}
    left = {name: detail for name, (outcome, detail) in rows.items() if outcome == "not imported"}
    assert left.keys() == {
        "at sunset", "in a hurry", "friday the 13th", "nobody's", "by name", "with a link", "gone",
    }  # fmt: skip
    assert "no worker has exported" in left["nobody's"]
    made = {row.name: row for row in Schedule.objects.unscoped().filter(tenant=acme)}
    assert made.keys() == rows.keys() - left.keys()
    morning = made["each morning"]
    assert (morning.kind, morning.rule, morning.time_zone) == ("cron", {"cron": "30 6,7,8 * * *"}, "Europe/Berlin")
    assert morning.task == {
        "handler": "shop.mail", "args": [1], "kwargs": {}, "expires_in_s": 60
    }  # fmt: skip
    assert (made["in Tokyo"].rule, made["in Tokyo"].time_zone) == ({"cron": "* 3 * * *"}, "Asia/Tokyo")
    assert made["weekdays"].rule == {"cron": "0,20,40 * * * 1,2,3,4,5"}
    assert (made["each minute"].rule, made["each minute"].task["priority"]) == ({"every_s": 60}, 5)
    table = made["from a table"]
    assert (table.rule, table.paused, table.end_at) == ({"every_s": 7200}, True, ten)
    assert (made["one day"].kind, made["one day"].next_fire_at) == ("once", moment)

    code, said = run("import_beat", APP, "--json")
    assert {row["outcome"] for row in json.loads(said)} == {"is there already", "not imported"}


def test_what_a_row_of_beats_says_is_taken_as_it_is_or_named(acme: Tenant) -> None:
    hourly = IntervalSchedule.objects.create(every=1, period="hours")
    rows_of_beat: dict[str, dict[str, Any]] = {
        "first of all": {"priority": 0, "args": "[1]"},
        "no JSON": {"args": "[1"},
        "no list": {"args": '{"order": 1}'},
        "no object": {"kwargs": "[1]"},
    }
    for name, more in rows_of_beat.items():
        PeriodicTask.objects.create(name=name, task="shop.plain", interval=hourly, **more)

    rows = {row["name"]: (row["outcome"], row["detail"]) for row in json.loads(run("import_beat", APP, "--json")[1])}

    assert rows["no JSON"] == rows["no list"] == ("not imported", "args: " + UNREAD)
    assert rows["no object"] == ("not imported", "kwargs: " + UNREAD)
    made = {row.name: row for row in Schedule.objects.unscoped().filter(tenant=acme)}
    assert made["first of all"].task["priority"] == 0, "which comes first with a broker of Redis"


def test_what_beat_has_done_with_is_no_failure_and_a_rounded_interval_is_named(acme: Tenant) -> None:
    past = ClockedSchedule.objects.create(clocked_time=timezone.now() - timedelta(days=1))
    PeriodicTask.objects.create(name="done", task="shop.plain", args="[1]", one_off=True, enabled=False, clocked=past)
    app = Celery("rounded", set_as_current=False)
    app.conf.beat_schedule = {
        "by the entry": {"task": "shop.plain", "schedule": 60, "relative": True, "args": [1]},
        "by the schedule": {"task": "shop.plain", "schedule": schedule(60, relative=True), "args": [1]},
    }

    rows = {row["name"]: row["outcome"] for row in json.loads(run("import_beat", APP, "--json")[1])}

    assert rows["done"] == "is over"
    assert not Schedule.objects.unscoped().filter(tenant=acme, name="done").exists()
    for entry in beat.of_app(app):
        with pytest.raises(InvalidInput, match="relative: cannot be kept"):
            beat.schedule_of(entry, app)
