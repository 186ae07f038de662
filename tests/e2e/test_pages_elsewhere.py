"""A page of another origin, in a real browser: with a key that names its origin it follows a task and uploads a file."""

from __future__ import annotations

import base64
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Finished
from slackwater_tasks.ledger.hints import tell_changes
from slackwater_tasks.runtime.work_store import PgWorkStore
from tests.support.api import ApiClient, client_of, furnish
from tests.support.browser import CHROMIUM, NEEDS
from tests.support.hand_worker import HandWorker
from tests.support.processes import running
from tests.support.submitters import free_port, is_up
from tests.support.waiting import wait_until

pytestmark = NEEDS
FOLLOW = """([url]) => {
    window.heard = []; window.lost = false;
    const events = new EventSource(url);
    events.addEventListener("task", event => {
        heard.push(JSON.parse(event.data).state);
        if (heard.at(-1) === "succeeded") events.close();
    });
    events.onerror = () => { lost = true; events.close(); };
}"""
UPLOAD = """async ([base, key, text, name]) => {
    const tus = {"Authorization": "Bearer " + key, "Tus-Resumable": "1.0.0"}, half = text.length / 2;
    const piece = {...tus, "Content-Type": "application/offset+octet-stream"};
    const made = await fetch(base + "/api/v1/uploads",
        {method: "POST", headers: {...tus, "Upload-Length": String(text.length), "Upload-Metadata": name}});
    const place = base + made.headers.get("Location");
    await fetch(place, {method: "PATCH", headers: {...piece, "Upload-Offset": "0"}, body: text.slice(0, half)});
    const here = (await fetch(place, {method: "HEAD", headers: tus})).headers.get("Upload-Offset");
    const last = await fetch(place,
        {method: "PATCH", headers: {...piece, "Upload-Offset": here}, body: text.slice(Number(here))});
    const part = await fetch(place + "/content", {headers: {...tus, "Range": "bytes=-3"}});
    return [made.status, here, last.headers.get("Upload-Offset"), part.status, part.headers.get("Content-Range"),
            await part.text()];
}"""
TRY = """async ([base, key]) => {
    const asked = {"Authorization": "Bearer " + key, "Upload-Length": "3"};
    return fetch(base + "/api/v1/uploads", {method: "POST", headers: asked}).then(() => "read", error => error.name);
}"""


@pytest.fixture
def pages() -> Iterator[int]:
    """A server of empty pages; its port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def api(database_url: str, redis_url: str, redis_client: Any, tmp_path: Path) -> Iterator[str]:
    """The API as it runs in production; its address."""
    furnish()
    env = {
        "SLACKWATER_DATABASE_URL": database_url, "SLACKWATER_REDIS_URL": redis_url,
        "SLACKWATER_VAR": str(tmp_path / "var"), "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded",
        "PYTHONPATH": "platform:apps:.",
    }  # fmt: skip
    port = free_port()
    command = [sys.executable, "-m", "granian", "--interface", "asginl", "--port", str(port), "--no-ws"]
    with running([*command, "slackwater.asgi:application"], env=env, name="api"):
        wait_until(lambda: is_up(port), timeout=60, message="the API answers")
        yield f"http://127.0.0.1:{port}"


def ticket(client: ApiClient, task_id: str) -> str:
    """The address that the page's own server gives it."""
    return str(client.post("/stream-tickets", {"task_id": task_id, "expires_in_s": 300}).body["url"])


def run(task_id: str) -> None:
    """Run a task, and tell who follows."""
    worker, store = HandWorker(), PgWorkStore(SchedulerConf(), "test")
    task = store.start(worker.node.pk, worker.claim(UUID(task_id)))[0]
    tell_changes([task.begun()])
    end = Finished(
        task.task_id, task.fence, Outcome.SUCCEEDED, task.running_at, task.running_at + 0.1, worker="child-1"
    )
    tell_changes(store.record(worker.node.pk, [end]))
    store.close()


def test_a_page_of_another_origin_follows_a_task_and_uploads_a_file(
    api: str, pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from playwright.sync_api import sync_playwright

    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # playwright's loop runs in this thread
    acme, mine, other = client_of("acme"), f"http://127.0.0.1:{pages}", f"http://localhost:{pages}"
    made = acme.post("/keys", {"name": "page", "scopes": ["read", "submit"], "origins": [mine]}).body
    hers, task_id = ApiClient(acme.tenant, acme.key, made["key"]), acme.task()
    name = f"filename {base64.b64encode(b'rows.csv').decode()}"
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--disable-gpu", "--no-first-run"])
        page = chromium.new_page()
        page.set_default_timeout(60_000)
        page.goto(other)
        assert page.evaluate(TRY, [api, made["key"]]) == "TypeError"
        page.evaluate(FOLLOW, [api + ticket(hers, task_id)])
        page.wait_for_function("window.lost")
        assert page.evaluate("window.heard") == []
        page.goto(mine)
        page.evaluate(FOLLOW, [api + ticket(hers, task_id)])
        page.wait_for_function("window.heard.length === 1")
        run(task_id)
        page.wait_for_function("window.heard.at(-1) === 'succeeded'")
        assert page.evaluate("window.heard") == ["ready", "running", "succeeded"]
        got = page.evaluate(UPLOAD, [api, made["key"], "0123456789", name])
        assert got == [201, "5", "10", 206, "bytes 7-9/10", "789"]
        assert page.evaluate(TRY, [api, acme.text]) == "TypeError"  # a key that does not name the page's origin
        chromium.close()
    received = {upload["name"]: upload["received"] for upload in acme.get("/uploads").body["items"]}
    assert received["rows.csv"] == 10
