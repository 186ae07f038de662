"""Durable tasks in Celery applications of one's own: what the patterns of ``DURABLE`` name become tasks of the ledger.

In a Django project the setting is enough. In plain Celery:

    app = Celery("shop", broker="redis://…")
    slackwater.install(app, database_url="postgresql://…", key="…", tenant="shop", durable=["orders.*"])

or, where there is no database to reach, with the address of the REST interface (:mod:`slackwater.over_rest`):

    slackwater.install(app, url="https://…", key="…", durable=["orders.*"])

The code of the tasks and of those who call them stays as it is, and so does each task that no pattern names. A worker
of the application (``celery -A shop worker``) is a node.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import wraps
from typing import Any, Final

from celery import Celery, _state

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.task import publishing

ROUTE: Final = "scheduler_ext.dispatch.router.route"
SETTINGS: Final = "slackwater.settings.installed"
ENVIRONMENT_VARIABLE: Final = "DJANGO_SETTINGS_MODULE"


def install(app: Celery, *, url: str = "", key: str = "", database_url: str = "", tenant: str = "",
            durable: Sequence[str] | None = None, shadow: Sequence[str] = (), redis_url: str = "") -> None:  # fmt: skip
    """Make the tasks of ``app`` durable whose names a pattern of ``durable`` matches: all, if neither it nor ``shadow`` is given.

    Over REST: ``url`` is the platform's address, ``key`` an API key of the tenant who owns the tasks. Without Django and
    with nothing given, SLACKWATER_URL and SLACKWATER_KEY say it.

    With a database: ``database_url`` is the ledger's. ``key``: the platform's secret key. ``tenant``: slug of the one who
    owns the tasks while no tenant is in context. ``shadow``: patterns of tasks that stay Celery's and are watched.
    ``redis_url``: the platform's Redis; the broker's unless given. The processes of a worker find all this in their
    environment. In a Django project the settings say it, and nothing is given here.
    """
    over_rest = bool(url) or (not database_url and not _has_django() and "SLACKWATER_URL" in os.environ)
    if over_rest:
        beside = {"database_url": database_url, "tenant": tenant, "shadow": shadow, "redis_url": redis_url}
        for name, value in beside.items():
            if value:
                raise ConfigurationError(f"means nothing over REST: {OVER_REST[name]}", field=name)
        from slackwater import over_rest as rest

        rest.install(app, url=url, key=key, durable=("*",) if durable is None else durable)
        return
    durable = durable if durable is not None else () if shadow else ("*",)
    if database_url:
        _set_up_django({
            "SLACKWATER_DATABASE_URL": database_url, "SLACKWATER_SECRET_KEY": key, "SLACKWATER_TENANT": tenant,
            "SLACKWATER_DURABLE": ",".join(durable), "SLACKWATER_SHADOW": ",".join(shadow),
            # What is only watched needs no Redis: its broker may be any.
            "SLACKWATER_REDIS_URL": redis_url or (str(app.conf.broker_url) if durable else ""),
            ENVIRONMENT_VARIABLE: SETTINGS,
        })  # fmt: skip
    if durable:
        lead(app)


OVER_REST: Final = {
    "database_url": "give it, or url",
    "tenant": "the key says whose the tasks are",
    "shadow": "the notes of the shadow are written to the database",
    "redis_url": "what calls tasks over REST needs no Redis of the platform's",
}
"""What ``install`` takes only with a database, and why."""


def _has_django() -> bool:
    """Whether this process is, or will be, a Django project's."""
    configured = "django.conf" in sys.modules and sys.modules["django.conf"].settings.configured
    return configured or ENVIRONMENT_VARIABLE in os.environ


def _set_up_django(environment: dict[str, str]) -> None:
    import django
    from django.conf import settings

    if settings.configured:
        raise ConfigurationError(
            "Django's settings are made already: say it there, in SLACKWATER", field="database_url"
        )
    os.environ |= environment
    django.setup()


def install_everywhere() -> None:
    """Install on every application of this process, those that are made later as soon as they are complete."""
    _state.connect_on_app_finalize(lead)
    for app in list(_state._get_active_apps()):  # type: ignore[attr-defined]  # not in the stubs
        lead(app)
    for name in ("delay_on_commit", "apply_async_on_commit"):
        _hand_in_at_once(name)


def lead(app: Celery) -> None:
    """Lead what an application publishes by way of the ledger, once, and let its workers be nodes."""
    if publishing.of(app) is not None:
        return
    from slackwater import wiring  # with Django

    publishing.install(app, wiring.celery_ledger)
    wiring.installed.append(app)
    _make_node(app)


def _make_node(app: Celery) -> None:
    """Let a worker of the application be a node. All is named, not loaded: who only publishes needs none of it."""
    app.conf.slackwater_engine = "slackwater.wiring:engine"
    app.conf.worker_consumer = "scheduler_ext.worker.consumer:OpenConsumer"
    routes = app.conf.task_routes or ()
    app.conf.task_routes = (ROUTE, *(routes if isinstance(routes, (list, tuple)) else (routes,)))
    vars(app).pop("amqp", None)  # its router would keep the routes as they were
    app.steps["worker"].add("scheduler_ext.worker.bootsteps:NodeStep")
    app.steps["consumer"].add("scheduler_ext.worker.bootsteps:TokenStep")


def _hand_in_at_once(name: str) -> None:
    """Let Django's calls after a commit be part of what is committed: nothing is lost between the two."""
    from celery.contrib.django.task import DjangoTask

    original: Any = getattr(DjangoTask, name)
    if hasattr(original, "__wrapped__"):
        return

    @wraps(original)
    def on_commit(self: Any, *args: Any, **kwargs: Any) -> None:
        found = publishing.of(self.app)
        if found is None or not found.is_handler(self.name) or self.app.conf.task_always_eager:
            original(self, *args, **kwargs)
        else:
            (self.delay if name == "delay_on_commit" else self.apply_async)(*args, **kwargs)

    setattr(DjangoTask, name, on_commit)
