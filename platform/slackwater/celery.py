"""The Celery app: Django's settings, the tasks of the installed apps, and Slackwater's bootsteps and router."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, signals
from django.core.exceptions import ImproperlyConfigured

from slackwater_conf import conf, sealing_keys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "slackwater.settings.embedded")

from scheduler_ext.core.seals import seals
from scheduler_ext.task import capture, publishing
from scheduler_ext.worker import process_state
from scheduler_ext.worker.bootsteps import NodeStep, TokenStep
from scheduler_ext.worker.execution import install
from slackwater import logs, wiring


def refuse_wrong_settings(**_: Any) -> None:
    """End a worker or beat with a word before handlers are imported; under ``manage.py up`` that was said before."""
    if os.environ.get("CELERY_SKIP_CHECKS"):
        return
    wiring.engine()  # sets Django up
    from slackwater_tasks.checks import wrong_settings

    if wrong := wrong_settings():
        raise SystemExit("\n".join(f"slackwater: {said}" for said in wrong))


logs.configure_structlog()
seals.texts = sealing_keys  # commands that only ask the workers (``celery inspect``) set no Django up
app = Celery(
    "slackwater",
    amqp="scheduler_ext.dispatch.messages:SealedMessages",
    control="scheduler_ext.worker.remote_control:SealedControl",
)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_routes = ("scheduler_ext.dispatch.router.route",)
app.conf.slackwater_engine = "slackwater.wiring:engine"
app.conf.worker_consumer = "scheduler_ext.worker.consumer:Consumer"
signals.import_modules.connect(refuse_wrong_settings, sender=app)  # before what looks for handlers
# The module is not called "tasks": that is the name of one of our apps.
app.autodiscover_tasks(related_name="celery_tasks")
try:
    app.conf.imports = conf().handlers
except ImproperlyConfigured as error:
    raise SystemExit(f"slackwater: {error}") from error
app.steps["worker"].add(NodeStep)
app.steps["consumer"].add(TokenStep)
install(app)
publishing.install(app, wiring.celery_ledger)


@signals.worker_process_init.connect
def begin_log(**_: Any) -> None:
    """A child of a worker writes its log beside its work."""
    logs.write_beside(*process_state.place(), conf().log_dir)
    capture.install()


@signals.worker_process_shutdown.connect
def end_log(**_: Any) -> None:
    """What waits is written."""
    logs.end_beside()
