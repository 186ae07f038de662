"""The example shop moves over by its settings alone, and its own worker is a node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection

from scheduler_ext.core.states import Outcome
from slackwater_resources.models import Handler, Node
from slackwater_tasks.explain.explanation import explain
from slackwater_tasks.models import Attempt, LiveTask, Task
from slackwater_tenants.scoping import tenant_scope
from tests.support import processes
from tests.support.platform import FAST, Platform
from tests.support.processes import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

MOVE = """
import slackwater

INSTALLED_APPS += slackwater.DJANGO_APPS
SLACKWATER = {"DURABLE": ["orders.*"], "TENANT": "acme", "REDIS_URL": CELERY_BROKER_URL}
"""
SWITCHED = """
import os
from celery import Celery
import slackwater

app = Celery("switched", broker=os.environ["SHOP_REDIS"])

@app.task(name="switched.note", acks_late=True)
def note(number):
    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{number}\\n")

slackwater.install(app, database_url=os.environ["PLAIN_DATABASE"], key="a key", tenant="acme", durable=["switched.*"])
"""
SWITCHING = """
from scheduler_ext.task import handlers
from switched import note

for number in range(2000):
    if number % 2 == 0:  # as a process that starts anew with the other setting
        handlers._exports.clear()
        handlers.declare(["switched.*"] if number % 4 else [])
    note.delay(number)
"""
ELSEWHERE = """
_ledger = conninfo_to_dict(os.environ["SHOP_LEDGER"])
DATABASES["ledger"] = {"ENGINE": "django.db.backends.postgresql", "NAME": _ledger.pop("dbname"), "OPTIONS": _ledger}
DATABASE_ROUTERS = ["slackwater_conf.database.LedgerRouter"]
SLACKWATER["LEDGER_ALIAS"] = "ledger"
"""
APART = """
from django.db import transaction
from django.utils import timezone
from apps.orders import tasks
from apps.orders.models import Order
from apps.people.models import User

order = Order.objects.create(buyer=User.objects.create(username="ann"), total="9.90")
order.refresh_from_db()
with transaction.atomic():
    apart = tasks.mail.delay(order.pk, "apart")
    assert apart.get(timeout=120) == "apart", "it runs before this transaction has committed"
assert sorted(tasks.process(order.pk, order.total, timezone.now()).get(timeout=120)) == ["9.90", "order"]
"""
PLAIN = """
import os
from celery import Celery
import slackwater

app = Celery("plain", broker=os.environ["SHOP_REDIS"])

@app.task(name="plain.add", bind=True, max_retries=1)
def add(self, x, y):
    if self.request.retries == 0:
        raise self.retry(countdown=0.1)
    return x + y

slackwater.install(app, database_url=os.environ["PLAIN_DATABASE"], key="a key", tenant="acme", durable=["plain.*"])
"""
STORY = """
import json
from django.db import transaction
from django.utils import timezone
from apps.orders import tasks
from apps.orders.models import Order, Step
from apps.people.models import User
from scheduler_ext.task import publishing
from shop.celery import app

def raised(call, kind):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")

order = Order.objects.create(buyer=User.objects.create(username="ann"), total="9.90")
order.refresh_from_db()

def taken_back():
    with transaction.atomic():
        tasks.mail.delay(order.pk, "never")
        raise LookupError("taken back")

raised(taken_back, LookupError)
with transaction.atomic():
    tasks.mail.delay_on_commit(order.pk, "committed")
    whole = tasks.process(order.pk, order.total, timezone.now())
    raised(lambda: whole.get(timeout=120), RuntimeError)
print("waits", whole.id, whole.state, flush=True)
assert sorted(whole.get(timeout=120)) == ["9.90", "order"], whole.result
assert len(whole.children) == 2, "what is durable of what it has called"
bad = tasks.refuse.delay(order.pk)
assert raised(lambda: bad.get(timeout=120), ValueError) == "no such article"
assert (bad.state, bad.ready()) == ("FAILURE", True)
late = tasks.mail.apply_async((order.pk, "late"), countdown=3600)
late.revoke()
assert late.state == "REVOKED"
assert app.send_task("orders.mail", (order.pk, "by name")).get(timeout=120) == "by name"
whole.forget()
assert app.AsyncResult(whole.id).result is None
past = publishing.of(app).send
for _ in range(2):
    past("orders.mail", (order.pk, "stray"), task_id="0b0e7a40-0000-4000-8000-000000000001")
tasks.mail.delay(order.pk, "last").get(timeout=120)
print("steps", json.dumps([order.pk, order.paid_at is None]))
"""


@pytest.fixture
def shop(platform: Platform, database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Path]:
    """The example, moved; its own tables stand in a schema beside."""
    folder = tmp_path / "shop"
    shutil.copytree(ROOT / "examples" / "shop", folder, ignore=shutil.ignore_patterns("__pycache__"))
    settings = folder / "shop" / "settings.py"
    before = settings.read_text()
    lines = [line for line in MOVE.splitlines() if line]
    assert len(lines) <= 5, "the whole move"
    scheduler = {**FAST, "impossible_after_s": 1}  # a task that no worker has yet is not given up all the same
    unrecorded = "MIGRATION_MODULES = dict.fromkeys(('people', 'orders'))"  # the record of migrations is shared
    settings.write_text(f'{before}{MOVE}SLACKWATER["SCHEDULER"] = {scheduler}\n{unrecorded}\n')
    options = quote("-c search_path=shop,public")
    platform.env |= {
        "SHOP_DATABASE": f"{database_url}{'&' if '?' in database_url else '?'}options={options}",
        "SHOP_REDIS": redis_url, "DJANGO_SETTINGS_MODULE": "shop.settings",
        "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT, ROOT / "platform", ROOT / "apps"))),
    }  # fmt: skip
    with connection.cursor() as cur:
        cur.execute("CREATE SCHEMA shop")
    try:
        yield folder
    finally:
        platform.close()
        with connection.cursor() as cur:
            cur.execute("DROP SCHEMA shop CASCADE")


def manage(platform: Platform, folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-W", "ignore", str(folder / "manage.py"), *words]


def steps() -> Counter[str]:
    with connection.cursor() as cur:
        cur.execute("SELECT name FROM shop.orders_step")
        return Counter(row[0] for row in cur.fetchall())


def test_a_project_moves_by_one_setting(platform: Platform, shop: Path) -> None:
    done = subprocess.run(
        manage(platform, shop, "migrate", "--run-syncdb", "-v", "0"), env={**os.environ, **platform.env}, check=False,
        capture_output=True, text=True, cwd=shop,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    story = platform.start("story", manage(platform, shop, "shell", "-c", STORY))
    story.wait_for("waits", timeout=120)
    waiting: Any = Task._plain.filter(handler="orders.charge").get()
    assert Handler.objects.filter(name="orders.charge", awaited=True).exists()
    platform.start("dispatcher", manage(platform, shop, "run_dispatcher"))
    platform.start("upkeep", manage(platform, shop, "run_upkeep"))
    with tenant_scope(platform.tenant.pk):
        wait_until(lambda: "waits for the first" in json.dumps(explain(waiting.pk), default=str), message="explained")
    options = ["-n", "shop@test", "-c", "2", "--without-gossip", "--without-mingle", "-l", "INFO"]
    worker = platform.start("w1", [sys.executable, "-W", "ignore", "-m", "celery", "-A", "shop", "worker", *options])
    worker.wait_for("shop@test ready", timeout=120)
    assert story.wait(timeout=240) == 0, story.output
    expected = Counter({
        "mail committed": 1, "mail order": 1, "charge": 2, "told": 1, "mail thanks": 1, "refuse": 1, "log": 1, "ship": 2,
        "mail by name": 1, "mail last": 1, "mail stray": 1,
    })  # fmt: skip
    wait_until(lambda: steps() == expected, timeout=120, message="each ran as often as it says")
    assert not Handler.objects.filter(awaited=True).exists()
    assert Node.objects.get().slots["script"] == 0, "a team's worker runs no scripts of others"
    charged = list(Attempt._plain.filter(task=waiting).order_by("number").values_list("outcome", flat=True))
    assert charged == [Outcome.RETRY, Outcome.SUCCEEDED]
    assert not Task._plain.filter(handler="audit.log").exists(), "what no pattern names goes where it went"
    wait_until(lambda: "Task audit.log[" in worker.output, message="its log tells of the team's tasks")
    assert "slackwater.slice[" not in worker.output, "and not of each token"


@pytest.mark.slow
def test_a_project_whose_ledger_is_another_database(platform: Platform, shop: Path, database_url: str) -> None:
    settings = shop / "shop" / "settings.py"
    settings.write_text(settings.read_text() + ELSEWHERE)
    platform.env["SHOP_LEDGER"] = database_url
    done = subprocess.run(
        manage(platform, shop, "migrate", "--run-syncdb", "-v", "0"), env={**os.environ, **platform.env}, check=False,
        capture_output=True, text=True, cwd=shop,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with connection.cursor() as cur:
        cur.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'shop' AND tablename LIKE 'slackwater%'")
        assert cur.fetchone() == (0,), "the platform's tables are not the project's"
    for name in ("dispatcher", "upkeep"):
        platform.start(name, processes.manage(f"run_{name}"), DJANGO_SETTINGS_MODULE="slackwater.settings.embedded")
    options = ["-n", "shop@test", "-c", "1", "--without-gossip", "--without-mingle", "-l", "INFO"]
    worker = platform.start("w1", [sys.executable, "-W", "ignore", "-m", "celery", "-A", "shop", "worker", *options])
    story = platform.start("story", manage(platform, shop, "shell", "-c", APART))
    assert story.wait(timeout=240) == 0, story.output + worker.output
    expected = {"charge": 2, "told": 1, "log": 1, "mail order": 1, "mail thanks": 1, "mail apart": 1, "ship": 2}
    wait_until(lambda: steps() == expected, timeout=60, message="each ran as often as it says")


@pytest.mark.slow
def test_plain_celery_moves_by_one_call(platform: Platform, database_url: str, redis_url: str, tmp_path: Path) -> None:
    worker = plain(platform, database_url, redis_url, tmp_path, "plain", PLAIN)
    call = "from plain import add; print('sum', add.delay(2, 3).get(timeout=120))"
    caller = platform.start("caller", [sys.executable, "-W", "ignore", "-c", call])
    assert caller.wait(timeout=150) == 0, caller.output + worker.output
    assert "sum 5" in caller.output


@pytest.mark.slow
def test_a_pattern_switched_a_thousand_times_loses_and_doubles_nothing(
    platform: Platform, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    platform.env["NOTES"] = str(notes)
    worker = plain(platform, database_url, redis_url, tmp_path, "switched", SWITCHED)
    callers = [platform.start(f"caller{n}", [sys.executable, "-W", "ignore", "-c", SWITCHING]) for n in range(2)]
    for caller in callers:
        assert caller.wait(timeout=240) == 0, caller.output + worker.output
    wait_until(lambda: len(notes.read_text().splitlines()) >= 4000, timeout=240, message="all have run")
    wait_until(lambda: not LiveTask.objects.unscoped().exists(), timeout=60, message="nothing is left")  # of any tenant
    assert Counter(notes.read_text().splitlines()) == {str(number): 2 for number in range(2000)}
    durable = Task._plain.filter(handler="switched.note").count()
    assert durable == 4000, "each message that a durable worker took was submitted"


def plain(platform: Platform, database_url: str, redis_url: str, folder: Path, name: str, text: str) -> Any:
    """A platform as a service, and a worker of a plain Celery application with durable tasks."""
    (folder / f"{name}.py").write_text(text)
    platform.dispatcher()
    platform.upkeep()
    platform.env |= {"PLAIN_DATABASE": database_url, "SHOP_REDIS": redis_url}
    for variable in (
        "SLACKWATER_DATABASE_URL",
        "SLACKWATER_REDIS_URL",
        "SLACKWATER_HANDLERS",
        "DJANGO_SETTINGS_MODULE",
    ):
        platform.env[variable] = ""
    platform.env["PYTHONPATH"] = os.pathsep.join(map(str, (folder, ROOT, ROOT / "platform", ROOT / "apps")))
    options = ["-n", f"{name}@test", "-c", "1", "--without-gossip", "--without-mingle", "-l", "INFO"]
    worker = platform.start("w1", [sys.executable, "-W", "ignore", "-m", "celery", "-A", name, "worker", *options])
    worker.wait_for(f"{name}@test ready", timeout=120)
    return worker
