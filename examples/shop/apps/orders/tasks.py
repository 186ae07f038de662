"""The shop's tasks: Celery as it is written everywhere."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from apps.orders.models import Order, Step
from celery import Task, chain, group, shared_task


class Bank(ConnectionError):
    """The bank does not answer."""


class Told(Task):  # type: ignore[type-arg]
    """Tells of each success."""

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        Step.objects.create(order_id=args[0], name="told")


@shared_task(name="orders.charge", bind=True, base=Told, autoretry_for=(Bank,), retry_backoff=False,
             retry_kwargs={"countdown": 0.2}, max_retries=4)  # fmt: skip
def charge(self: Any, order: int, total: Decimal) -> str:
    """Charge the buyer; the bank answers the second time."""
    Step.objects.create(order_id=order, name="charge")
    if self.request.retries == 0:
        raise Bank("try again")
    return str(total)


@shared_task(name="orders.mail")
def mail(order: int, why: str) -> str:
    """Write to the buyer."""
    Step.objects.create(order_id=order, name=f"mail {why}")
    return why


@shared_task(name="orders.refuse")
def refuse(order: int) -> None:
    """Fail: once is enough."""
    Step.objects.create(order_id=order, name="refuse")
    raise ValueError("no such article")


@shared_task(name="orders.settle")
def settle(said: list[str], order: int, at: datetime) -> list[str]:
    """Note that all is done."""
    Order.objects.filter(pk=order).update(paid_at=at)
    log.delay(order)
    mail.delay(order, "thanks")
    return said


@shared_task(name="audit.log")
def log(order: int) -> None:
    """What may be lost."""
    Step.objects.create(order_id=order, name="log")


@shared_task(name="orders.count_stock")
def count_stock() -> None:
    """What beat starts."""


def process(order: int, total: Decimal, at: datetime) -> Any:
    """Charge and write at once, then settle."""
    return chain(group(charge.s(order, total), mail.s(order, "order")), settle.s(order, at)).delay()
