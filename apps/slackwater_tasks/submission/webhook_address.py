"""Addresses that clients give to be told at, checked against requests forged from inside; and those of single tasks."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from scheduler_ext.core.errors import InvalidInput
from slackwater_conf import conf
from slackwater_tasks.ledger.copy_format import insert
from slackwater_tasks.ledger.rows import Accepted
from slackwater_tasks.models import Listener
from slackwater_tasks.spec import TaskSpec, join

LONGEST_URL: Final = 2_000
PORTS: Final = {"http": 80, "https": 443}
# Addresses that carry another one inside; is_global says nothing about the one within.
NAT64: Final = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An address to send to."""

    secure: bool
    host: str
    """As it is looked up and certified: lower case, international names in their ASCII form."""
    port: int
    path: str
    """With its query."""

    @property
    def authority(self) -> str:
        """As the ``Host`` header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS["https" if self.secure else "http"] else f"{host}:{self.port}"


def parse_url(text: Any, *, private: bool, field: str = "url") -> Target:
    """A client's address; ``InvalidInput`` for one that is none, or plainly leads inside.

    ``private``: whether addresses of private networks are allowed.
    """

    def refuse(why: str) -> InvalidInput:
        return InvalidInput(why, field=field)

    if not isinstance(text, str) or not text or len(text) > LONGEST_URL:
        raise refuse(f"must be an address of at most {LONGEST_URL} characters")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise refuse("must be ASCII without spaces; write other characters percent-encoded, or as xn--")
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
    if not private and (target.host == "localhost" or target.host.endswith(".localhost") or _is_inside(target.host)):
        raise refuse("leads to a private network, where nothing is sent")
    return target


def _is_inside(host: str) -> bool:
    """Whether a host is written as an address that is not public; a name is looked up only when it is sent to."""
    try:
        return not is_public(host)
    except ValueError:
        # What inet_aton would take for an address (127.1, 0x7f000001, 2130706433) is no name of a public host.
        last = host.rpartition(".")[2]
        return last.isdigit() or last.startswith("0x")


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public Internet; ``ValueError`` when it is none."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner: list[Any] = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
        if ip in NAT64:
            inner.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
        if any(one is not None and not is_public(str(one)) for one in inner):
            return False
        if ip.ipv4_mapped is not None or ip in NAT64:
            return True
    return ip.is_global and not ip.is_multicast


def private_allowed() -> bool:
    """Whether webhooks may be sent into private networks."""
    return conf().webhook_private


# -- a task's own address ---------------------------------------------------------------------------------------------
COLUMNS: Final = ("task_id", "tenant_id", "url")


def check_tasks(tenant_id: int, specs: Sequence[TaskSpec], paths: Sequence[str]) -> None:
    """``InvalidInput`` names the ``webhook`` that is no address, or that nobody's secret would sign. Most have none."""
    some = [(spec.webhook, join(path, "webhook")) for spec, path in zip(specs, paths, strict=True) if spec.webhook]
    if not some:
        return
    for url, field in some:
        parse_url(url, private=private_allowed(), field=field)
    if not Listener.objects.filter(tenant_id=tenant_id, tells_tasks=True).exists():
        raise InvalidInput(
            "make a webhook with the channel task first: it chooses the events, and its secret signs them",
            field=some[0][1],
        )


def write(cur: Any, tenant_id: int, tasks: Sequence[Accepted]) -> None:
    """Write the addresses that tasks have of their own."""
    rows = [(task.id, tenant_id, task.spec.webhook) for task in tasks if task.spec.webhook]
    if rows:
        insert(cur, "slackwater_tasks_taskwebhook", COLUMNS, rows)
