"""Celery with django-celery-results: the final states (and starts) are rows in PostgreSQL.

``keepconn``: its workers keep their connections, which Celery closes around each task unless told otherwise.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

# Celery sees by this variable that it runs beside Django, and manages the connections; the settings stand below.
os.environ["DJANGO_SETTINGS_MODULE"] = "celery_django_peer"

import django
from celery import Celery
from django.conf import settings
from django.core.management import call_command
from psycopg.conninfo import conninfo_to_dict

from tests.lab.benchmarks.measure import main
from tests.lab.benchmarks.peers.common import CONFIG, Rival, channel

KEEP = CONFIG.variant == "keepconn"
place = conninfo_to_dict(CONFIG.database_url)
database = {name.upper(): str(place.get(name) or "") for name in ("user", "password", "host", "port")}
if not settings.configured:
    settings.configure(
        SECRET_KEY="only-measured",
        USE_TZ=True,
        INSTALLED_APPS=["django_celery_results"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        DATABASES={
            "default": {
                **database,
                "ENGINE": "django.db.backends.postgresql",
                "NAME": place["dbname"],
                "CONN_MAX_AGE": None if KEEP else 0,
            }
        },
    )
    django.setup()

app = Celery("celery_django_peer", broker=CONFIG.redis_url, backend="django-db")
app.conf.update(task_track_started=True, broker_connection_retry_on_startup=True)
if KEEP:
    app.conf.CELERY_DB_REUSE_MAX = 1_000_000_000


@app.task(name="work")
def work(number: int, ms: float) -> None:
    """The measured function."""
    channel().work(number, ms)


class CeleryDjango(Rival):
    """One message and one row a task."""

    packages = ("celery", "Django", "django-celery-results", "psycopg")
    count = "SELECT count(*) FROM django_celery_results_taskresult WHERE status = 'SUCCESS'"

    def setup(self) -> None:
        self.empty_servers()
        call_command("migrate", verbosity=0)

    def reset(self) -> None:
        self.flush_redis()
        self.pg.execute("TRUNCATE django_celery_results_taskresult")

    def workers(self) -> Mapping[str, list[str]]:
        options = ["worker", "-P", "prefork", "-c", str(CONFIG.concurrency), "-l", "WARNING"]
        return {"worker": [sys.executable, "-m", "celery", "-q", "-A", "celery_django_peer", *options]}

    def submit(self, number: int) -> None:
        work.delay(number, CONFIG.ms)


if __name__ == "__main__":
    main(CeleryDjango())
