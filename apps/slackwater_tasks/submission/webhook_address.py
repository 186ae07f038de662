"""Addresses to which clients want to be told, checked against requests forged from inside."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from scheduler_ext.core.errors import DoesNotFit, InvalidInput
from slackwater_conf import conf
from slackwater_tasks.field_kinds import check_written
from slackwater_tasks.ledger.copy_format import insert
from slackwater_tasks.ledger.rows import Accepted
from slackwater_tasks.models import Listener
from slackwater_tasks.spec import TaskSpec, join
from slackwater_tasks.submission.public_address import is_public

MAX_URL: Final = 2_000
PORTS: Final = {"http": 80, "https": 443}
ANY_PORT: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An address to send to."""

    secure: bool
    host: str
    """The host as it is looked up and certified: lower case, international names in their ASCII form."""
    port: int
    path: str
    """The path with its query."""

    @property
    def authority(self) -> str:
        """The host as the ``Host`` header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS["https" if self.secure else "http"] else f"{host}:{self.port}"


def parse_url(text: Any, *, private: bool, ports: Collection[int] = (ANY_PORT,), field: str = "url") -> Target:
    """Parse an address to send to; ``InvalidInput`` if it is none, plainly leads inside, or to another port.

    ``private``: whether addresses of private networks are allowed.
    """

    def refuse(why: str) -> InvalidInput:
        return DoesNotFit(why, field=field)

    if not isinstance(text, str) or not text or len(text) > MAX_URL:
        raise InvalidInput(f"must be an address of at most {MAX_URL} characters", field=field)
    check_written(text, field)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise refuse("is not an address") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise refuse("must begin with https:// (or http://) and name a host")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise refuse("must not have a user, a password or a fragment")
    if port == 0:
        raise refuse("has no such port")
    target = Target(
        secure=parts.scheme == "https", host=parts.hostname.rstrip("."), port=port or PORTS[parts.scheme],
        path=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
    )  # fmt: skip
    if ANY_PORT not in ports and target.port not in ports:
        raise refuse(f"must have one of the ports {', '.join(map(str, sorted(ports)))}")
    if not private and (target.host == "localhost" or target.host.endswith(".localhost") or _is_inside(target.host)):
        raise refuse("leads to a private network, where nothing is sent")
    return target


def _is_inside(host: str) -> bool:
    """Whether a host is written as an address that is not public; names are resolved only when sending."""
    try:
        return not is_public(host)
    except ValueError:
        # What inet_aton would take for an address (127.1, 0x7f000001, 2130706433) is no name of a public host.
        last = host.rpartition(".")[2]
        return last.isdigit() or last.startswith("0x")


def parse_given(text: Any, *, field: str = "url") -> Target:
    """A client's address, checked against what the operator allows clients."""
    return parse_url(text, private=conf().webhook_private, ports=conf().webhook_ports, field=field)


# -- a task's own address ---------------------------------------------------------------------------------------------
COLUMNS: Final = ("task_id", "tenant_id", "url")


def check_tasks(tenant_id: int, specs: Sequence[TaskSpec], paths: Sequence[str]) -> None:
    """Check a task's ``webhook``; ``InvalidInput`` for one that is no address, or that nobody's secret would sign."""
    some = [(spec.webhook, join(path, "webhook")) for spec, path in zip(specs, paths, strict=True) if spec.webhook]
    if not some:
        return
    for url, field in some:
        parse_given(url, field=field)
    if not Listener.objects.filter(tenant_id=tenant_id, tells_tasks=True).exists():
        raise DoesNotFit(
            "make a webhook with the channel task first: it chooses the events, and its secret signs them",
            field=some[0][1],
        )


def write(cur: Any, tenant_id: int, tasks: Sequence[Accepted]) -> None:
    """Write the addresses that tasks have of their own."""
    rows = [(task.id, tenant_id, task.spec.webhook) for task in tasks if task.spec.webhook]
    if rows:
        insert(cur, "slackwater_tasks_taskwebhook", COLUMNS, rows)
