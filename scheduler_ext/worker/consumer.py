"""Celery's consumer, made to survive any failure of its broker and to take no messages but the platform's own."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from celery import signals
from celery.app.task import Context
from celery.canvas import Signature
from celery.exceptions import NotRegistered
from celery.worker.consumer import Consumer as CeleryConsumer
from kombu.exceptions import OperationalError

from scheduler_ext.core.errors import InvalidInput, SlackwaterError
from scheduler_ext.dispatch.messages import Seen
from scheduler_ext.dispatch.node_cleanup import mend_queues
from scheduler_ext.dispatch.refusals import Kind, refusals
from scheduler_ext.task import handlers, publishing, results
from scheduler_ext.task.celery_json import CALL
from scheduler_ext.task.celery_options import max_retries
from scheduler_ext.task.in_flight import GOES_ON
from scheduler_ext.worker.broker_guard import guarded

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Seconds between attempts to reach a broker that is away; Celery's own pauses grow to 30 s, while children idle."""


class Consumer(CeleryConsumer):
    """Comes back after whatever the broker does: tokens may vanish at any moment, a worker's children may not.

    Two things ended Celery's worker, and with it all that its children ran: a broken connection that could not be
    closed (kombu gives unacknowledged messages back over the very link that is broken), and a broker without memory,
    whose answer counts as an error of the channel, while connecting or while running.
    """

    connection_errors: tuple[type[Exception], ...]
    conninfo: Any
    strategies: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As Celery makes it; what the broker answers counts as an error of the connection."""
        super().__init__(*args, **kwargs)
        self.refused: Counter[str] = Counter()
        """Refused messages for handlers, by task name; ``celery inspect stats`` shows them."""
        self.seen = Seen()
        self.connection_errors = (*self.connection_errors, *self.conninfo.channel_errors, OperationalError)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Let go of the broken connection; the reconnection follows."""
        try:
            super().on_connection_error_after_connected(exc)
        except Exception as error:  # noqa: BLE001 - whatever it is, the connection is gone and a new one comes next
            log.warning("the broken broker connection could not be closed in order: %s", error)

    def ensure_connected(self, conn: Any) -> Any:
        """Wait for the broker, looking every second; then see that its keys of our names are queues."""
        transport = guarded(conn.get_transport_cls())
        conn.get_transport_cls, conn._transport = lambda: transport, None
        conn.ensure_connection = partial(
            conn.ensure_connection, interval_start=RETRY_S, interval_step=0, interval_max=RETRY_S
        )
        connected = super().ensure_connected(conn)
        mend_queues(connected, [queue.name for queue in self.app.amqp.queues.consume_from.values()])
        return connected

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        """Choose what is done with a message: nothing without the platform's signature."""
        handle = super().create_task_handler(*args, **kwargs)

        def on_task_received(message: Any) -> Any:
            why = self.seen.refusal(message)
            if why:
                refusals.add(Kind.MESSAGE, f"{why}: {_name(message)!r}")
                return message.ack_log_error(log, self.connection_errors)
            self._note_when_taken(message)
            return handle(message)

        return on_task_received

    def _note_when_taken(self, message: Any) -> None:
        """Whether a message is delivered again that was not acknowledged: it is then to be run again."""
        acknowledge = message.ack

        def ack(*args: Any, **kwargs: Any) -> Any:
            self.seen.took(message)
            return acknowledge(*args, **kwargs)

        message.ack = ack

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Drop what cannot be read; Celery would log all of it each time."""
        refusals.add(Kind.BROKEN, f"a message of the type {message.content_type!r}: {type(exc).__name__}")
        message.ack_log_error(log, self.connection_errors)

    def update_strategies(self) -> None:
        """Decide about a message by its task's name. One for a handler is refused: the ledger has no such run."""
        super().update_strategies()
        for export in handlers.exported().values():
            self.strategies[export.task] = partial(self.refuse, export.task)

    def refuse(self, name: str, message: Any, *_: Any) -> None:
        """Refuse a message for a handler, which has no tenant and no fence; log the first of each name.

        Such a message bears the seal: a process of ours sent it that did not know the handler for one.
        """
        self.refused[name] += 1
        refusals.add(Kind.MESSAGE, f"a message for the handler {name}")
        task_id = message.headers.get("id") if message.headers else None
        error = NotRegistered(f"{name} is a handler of Slackwater and runs for its ledger only: submit it there")
        level = logging.ERROR if self.refused[name] == 1 else logging.DEBUG
        log.log(
            level, "a message for the handler %s (id %s) was refused: it was published past the ledger", name, task_id
        )
        message.reject_log_error(log, self.connection_errors)
        signals.task_rejected.send(sender=self, message=message, exc=error)
        if task_id is not None:
            request = SimpleNamespace(
                name=name, chord=None, root_id=None, correlation_id=None, reply_to=None, errbacks=None
            )
            self.app.backend.mark_as_failure(task_id, error, request=request)


class OpenConsumer(Consumer):
    """The consumer of a team's own worker: it takes that application's messages, which bear no signature."""

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        """As in Celery, but messages for handlers are refused."""
        handler: Callable[[Any], Any] = CeleryConsumer.create_task_handler(self, *args, **kwargs)
        return handler

    def update_strategies(self) -> None:
        """Submit a message for a durable task that was published before it became durable, or past the ledger."""
        CeleryConsumer.update_strategies(self)
        for export in handlers.exported().values():
            self.strategies[export.task] = partial(self.take_over, export.task, self.strategies.get(export.task))

    def take_over(self, name: str, before: Any, message: Any, payload: Any, *how: Any) -> None:
        """Submit what a message asks for, once. A step of a canvas that began before goes on as it began."""
        args, kwargs, embed = message.payload if payload is None else (payload.get("args"), payload.get("kwargs"), {})
        headers = message.headers or {}
        step = headers.get("group") or headers.get(GOES_ON) or any((embed or {}).values())
        if before is not None and step:
            before(message, payload, *how)
            return
        found, task_id = publishing.of(self.app), headers.get("id") or (payload or {}).get("id")
        try:
            assert found is not None
            options, told = _said(message, self.app.tasks.get(name))
            if task_id:
                options.setdefault("slackwater", {})["idempotency_key"] = f"celery:message:{task_id}"
            kwargs = {**kwargs, CALL: told} if told else kwargs
            stored = found.ledger.submit(Signature(name, args, kwargs, options, app=self.app), None)
            if task_id:
                results.lead_to(self.app, task_id, stored.result_ids[0])
        except SlackwaterError as error:
            log.error("the message %s for the durable task %s was refused: %s", task_id, name, error)  # noqa: TRY400
            message.reject_log_error(log, self.connection_errors)
        except Exception:
            log.exception("the message %s for the durable task %s goes back to the broker", task_id, name)
            self.timer.call_after(RETRY_S, message.reject_log_error, (log, self.connection_errors, True))
        else:
            message.ack_log_error(log, self.connection_errors)
        finally:
            if found is not None:
                found.ledger.release()

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """As in Celery."""
        CeleryConsumer.on_decode_error(self, message, exc)


def _said(message: Any, task: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a message says beside its arguments: the options of a call, and what the run is told."""
    headers = message.headers or {}
    options = {name: headers[name] for name in ("eta", "expires") if headers.get(name)}
    # Kombu gives each message without a priority that of 0.
    priority = (getattr(message, "properties", None) or {}).get("priority")
    try:
        hard, soft = headers.get("timelimit") or (None, None)
        retries = int(headers.get("retries") or 0)
    except (TypeError, ValueError):
        raise InvalidInput("are not Celery's: timelimit must be a pair, retries a number", field="headers") from None
    options |= {name: value for name, value in (("time_limit", hard), ("priority", priority)) if value}
    if retries and task is not None and task.max_retries is not None:
        options["slackwater"] = {"total_attempts": max(1, 1 + max_retries(task) - retries)}
    own = Context(headers).headers
    told = {"headers": own, "soft_time_limit": soft, "retries": retries}
    return options, {name: value for name, value in told.items() if value}


def _name(message: Any) -> Any:
    return message.headers.get("task") if isinstance(message.headers, dict) else None
