"""A Celery project that moves over, with something of each kind; nothing of it is ever run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from celery import Celery, chord, group
from celery.schedules import crontab

app = Celery("shop", set_as_current=False)
app.conf.update(timezone="Europe/Berlin", broker_url="memory://")


@app.task(name="shop.plain")
def plain(order: int) -> int:
    """Say nothing of itself."""
    return order


@app.task(name="shop.mail", bind=True, max_retries=5, rate_limit="10/m", acks_late=True)
def mail(self: Any, /, order: int, **options: Any) -> None:
    """Say much of itself."""
    plain.delay(order)
    plain.apply_async((order,), countdown=5, queue="slow")
    plain.apply_async((order,), link_error=plain.s(), task_id="mine")
    plain.apply_async((order,), link_error=plain.si(1), **options)
    plain.s(order).set(priority=3)
    plain.map([1, 2])
    app.send_task("shop.plain", (order,), colour="red")
    plain.apply_async((order,), {}, "a-name")
    plain.subtask((order,), task_id="a-name")
    self.retry(countdown=3, max_retries=7)
    self.retry(queue="other")
    self.replace(chord(group(plain.s(1)), plain.s()))  # as with Celery


@app.task(name="shop.forever", max_retries=1_000)
def forever() -> None:
    """Ask for more than there is."""


app.conf.beat_schedule = {
    "each morning": {"task": "shop.mail", "schedule": crontab(minute=30, hour="6-8"), "args": (1,), "options": {"expires": 60}},
    "each minute": {"task": "shop.plain", "schedule": 60.0, "kwargs": {"order": 2}, "options": {"priority": 5}},
    "weekdays": {"task": "shop.plain", "schedule": crontab(minute="*/20", day_of_week="mon-fri"), "args": (3,)},
    "by name": {"task": "shop.plain", "schedule": 60, "args": (3,), "options": {"task_id": "a-name"}},
    "with a link": {"task": "shop.plain", "schedule": 60, "args": (3,), "options": {"link": plain.si(1)}},
    "gone": {"task": "shop.gone", "schedule": 60},
    "in a hurry": {"task": "shop.plain", "schedule": timedelta(milliseconds=500)},
    "friday the 13th": {"task": "shop.plain", "schedule": crontab(minute=0, hour=0, day_of_month=13, day_of_week=5)},
}  # fmt: skip
