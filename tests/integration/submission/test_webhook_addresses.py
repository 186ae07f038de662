"""Where webhooks may lead: never into a private network, whatever the spelling; and the address of one task alone."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from scheduler_ext.core.errors import InvalidInput
from slackwater_monitoring.notify.webhook_client import NotSent, post
from slackwater_tasks.submission.public_address import is_public
from slackwater_tasks.submission.webhook_address import parse_url
from tests.support.api import HANDLER, ApiClient, forget_lookups
from tests.support.hand_worker import HandWorker
from tests.support.receiver import receiving
from tests.support.waiting import wait_until
from tests.support.webhooks import hook, sending, spread, told, verify

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _private(settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "WEBHOOK_PRIVATE": True, "WEBHOOK_PORTS": (0,)}


INSIDE = [
    "127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "::1",
    "fe80::1", "fc00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "224.0.0.1",
    "255.255.255.255",
]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_private_addresses_are_refused_in_every_spelling(address: str) -> None:
    assert not is_public(address)
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(InvalidInput, match="private network"):
        parse_url(f"https://{host}/x", private=False)


def test_ports_that_are_no_web_servers_are_refused(acme: ApiClient, settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "WEBHOOK_PORTS": (443, 8443)}
    for port in ("", ":443", ":8443"):
        assert (
            acme.post("/webhooks", {"url": f"https://hooks.example.org{port}/", "events": ["task.failed"]}).status
            == 201
        )
    for port in (":6379", ":22", ":80"):
        answer = acme.post("/webhooks", {"url": f"https://hooks.example.org{port}/", "events": ["task.failed"]})
        assert (answer.status, answer.body["field"]) == (422, "url")
        assert "443, 8443" in answer.body["detail"]


@pytest.mark.parametrize(
    "url",
    ["http://localhost/", "http://x.localhost", "http://127.1/", "http://2130706433/", "http://0x7f000001/",
     "http://127.0.0.1.:80/"],
)  # fmt: skip
def test_other_names_for_here_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="private network"):
        parse_url(url, private=False)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_public_addresses_are_not(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    ["", "ftp://x", "https://", "https://u:p@x/", "https://x/#f", "https://x y/", "https://ü.de", "https://x:99999/",
     "javascript:1", "https://x/\r\nX: 1", "//x", "https://[::1", "https://x:0/", 5, None, "https://" + "x" * 3000],
)  # fmt: skip
def test_what_is_no_address_is_refused_with_its_field(acme: ApiClient, url: Any) -> None:
    answer = acme.post("/webhooks", {"url": url, "events": ["task.failed"]})
    assert (answer.status, answer.body.get("field")) == (422, "url"), answer.body


def test_a_name_that_leads_inside_is_refused_when_it_is_sent_to() -> None:
    with receiving() as receiver:
        target = parse_url(receiver.url, private=True)
        named = parse_url(f"http://localhost:{receiver.port}/", private=True)
        for one in (target, named):
            with pytest.raises(NotSent, match="private network"):
                asyncio.run(post(one, {}, b"{}", private=False, seconds=5))
        assert receiver.got == []
        assert asyncio.run(post(target, {}, b"{}", private=True, seconds=5)).status == 204


def test_a_redirect_is_not_followed(acme: ApiClient) -> None:
    with receiving() as inside, receiving() as receiver:
        receiver.answer = lambda _: (302, {"Location": inside.url})
        made = hook(acme, receiver.url)
        acme.post(f"/webhooks/{made['id']}/ping")
        with sending():
            wait_until(lambda: told(acme, made["id"])[0]["state"] == "failed")
        assert inside.got == []
        assert told(acme, made["id"])[0]["log"][0]["status"] == 302


def test_a_receiver_that_drips_or_speaks_no_http_is_left_in_time() -> None:
    async def story() -> None:
        ended = asyncio.Event()

        async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while not reader.at_eof():
                    writer.write(b"H")
                    await writer.drain()
                    await asyncio.wait([asyncio.ensure_future(reader.read(1_000))], timeout=0.05)
            except OSError:
                pass
            writer.close()
            ended.set()

        async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.example.org ESMTP\r\n\r\n")
            await writer.drain()
            writer.close()
            ended.set()

        for speak, why, seconds in ((drip, "no answer within", 0.5), (nonsense, "no HTTP", 20.0)):
            server = await asyncio.start_server(speak, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(NotSent, match=why):
                await post(
                    parse_url(f"http://127.0.0.1:{port}/", private=True),
                    {},
                    b"",
                    private=True,
                    seconds=seconds,
                )
            async with asyncio.timeout(30):
                await ended.wait()
            ended.clear()
            server.close()

    asyncio.run(story())


# -- a task's own address ---------------------------------------------------------------------------------------------
def test_a_task_has_its_own_events_sent_where_it_says(acme: ApiClient) -> None:
    with receiving() as receiver:
        unsigned = acme.post("/tasks", {"handler": HANDLER, "webhook": receiver.url})
        assert (unsigned.status, unsigned.body["field"]) == (422, "webhook")
        made = acme.post("/webhooks", {"channel": "task", "events": ["task.succeeded", "task.cancelled"]})
        assert made.status == 201, made.body
        forget_lookups()
        own, other = acme.task(webhook=receiver.url), acme.task()
        assert acme.get(f"/tasks/{own}").body["webhook"] == receiver.url
        worker = HandWorker()
        for task_id in (own, other):
            worker.run(UUID(task_id))
        spread()
        with sending():
            wait_until(lambda: receiver.events() == ["task.succeeded"])
        assert verify(receiver.got[0], made.body["secret"])
        assert receiver.got[0].json["data"]["task_id"] == own
        assert "webhook" not in receiver.got[0].json["data"]
        assert [row["task_id"] for row in told(acme, made.body["id"])] == [own]


def test_one_tasks_address_that_is_gone_says_nothing_of_the_others(acme: ApiClient) -> None:
    with receiving() as gone, receiving() as receiver:
        gone.answer = lambda _: (410, {})
        made = acme.post("/webhooks", {"channel": "task", "events": ["task.cancelled"]}).body
        forget_lookups()
        for url in (gone.url, receiver.url):
            acme.post(f"/tasks/{acme.task(webhook=url)}/cancel")
        spread()
        with sending():
            wait_until(lambda: sorted(row["state"] for row in told(acme, made["id"])) == ["delivered", "failed"])
        assert acme.get(f"/webhooks/{made['id']}").body["enabled"]
        assert (len(gone.got), len(receiver.got)) == (1, 1)


@pytest.mark.parametrize("url", ["http://127.0.0.1/x", "ftp://example.org", "x", "https://u:p@example.org"])
def test_a_tasks_address_is_checked_like_any(acme: ApiClient, settings: Any, url: str) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "WEBHOOK_PRIVATE": False}
    acme.post("/webhooks", {"channel": "task", "events": ["task.failed"]})
    body = {"tasks": [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "webhook": url}]}
    answer = acme.post("/workflows", body)
    assert (answer.status, answer.body["field"]) == (422, "tasks[1].webhook")
