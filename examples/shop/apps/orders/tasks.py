"""The shop's tasks: Celery as it is written everywhere."""

import os
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from apps.orders.models import Order, Step
from celery import Task, chain, group, shared_task


class Bank(ConnectionError):
    """The bank does not answer."""


def write_down(name: str) -> None:
    """Write a line where somebody counts runs: no transaction takes it back."""
    if diary := os.environ.get("SHOP_DIARY"):
        with Path(diary).open("a", buffering=1) as file:
            file.write(f"{name}\n")


def note(order: int, name: str) -> None:
    """Tell of a run, in the shop's table and beside it."""
    Step.objects.create(order_id=order, name=name)
    write_down(name)


class Told(Task):  # type: ignore[type-arg]
    """Tells of each success."""

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        note(args[0], "told")


@shared_task(name="orders.charge", bind=True, base=Told, autoretry_for=(Bank,), retry_backoff=False,
             retry_kwargs={"countdown": 0.2}, max_retries=4)  # fmt: skip
def charge(self: Any, order: int, total: Decimal) -> str:
    """Charge the buyer; the bank answers the second time."""
    note(order, "charge")
    if self.request.retries == 0:
        raise Bank("try again")
    return str(total)


@shared_task(name="orders.mail")
def mail(order: int, why: str) -> str:
    """Write to the buyer."""
    note(order, f"mail {why}")
    return why


@shared_task(name="orders.refuse")
def refuse(order: int) -> None:
    """Fail: once is enough."""
    note(order, "refuse")
    raise ValueError("no such article")


@shared_task(name="orders.settle")
def settle(said: list[str], order: int, at: datetime) -> list[str]:
    """Note that all is done."""
    Order.objects.filter(pk=order).update(paid_at=at)
    log.delay(order)
    mail.delay(order, "thanks")
    ship.delay(order)
    return said


@shared_task(name="orders.ship", bind=True, max_retries=3)
def ship(self: Any, order: int) -> None:
    """Ship; the carrier comes the second time."""
    note(order, "ship")
    if self.request.retries == 0:
        raise self.retry(countdown=0.1)


@shared_task(name="audit.log")
def log(order: int) -> None:
    """What may be lost."""
    note(order, "log")


@shared_task(name="orders.count_stock")
def count_stock() -> None:
    """What beat starts."""
    write_down("stock")


def process(order: int, total: Decimal, at: datetime) -> Any:
    """Charge and write at once, then settle."""
    return chain(group(charge.s(order, total), mail.s(order, "order")), settle.s(order, at)).delay()
