"""A client generated from the OpenAPI document speaks with the served API: generated, imported, used."""

from __future__ import annotations

import importlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict
from uuid import UUID

import httpx
import pytest
from django.core.wsgi import get_wsgi_application

from scheduler_ext.task.signature import schema_of
from slackwater_api.http.tenant_document import tenant_document
from slackwater_resources.models import Handler
from tests.support.api import HANDLER, client_of, furnish

pytestmark = pytest.mark.django_db(transaction=True)  # the real handler closes connections between requests
PACKAGE = "generated_slackwater"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "api.md"


class Attached(TypedDict):
    file: UUID
    size: Decimal


def send(
    to: str,
    subject: str = "hello",
    copies: int | None = None,
    *,
    tags: Sequence[str] = (),
    files: Sequence[Attached] = (),
) -> None:
    """Send a mail."""


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The generated package, imported."""
    folder = tmp_path_factory.mktemp("client")
    handlers = [{"name": "mail.send", "description": "Send a mail.", "schema": schema_of(send)}]
    (folder / "openapi.json").write_text(json.dumps(tenant_document(handlers), default=str))
    # The media type of an upload's piece (tus) is one the generator has to be told of, as the page does.
    told = re.search(r"^echo '(.+)' > generate\.json$", PAGE.read_text(), re.MULTILINE)
    assert told
    (folder / "generate.json").write_text(told[1])
    # What the generator cannot make sense of is a fault of the document; it formats with ruff, from its own folder.
    done = subprocess.run(
        [
            sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none",
            "--output-path", PACKAGE, "--config", "generate.json", "--fail-on-warning",
        ],
        cwd=folder, capture_output=True, text=True, check=False,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module(PACKAGE)
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


def operation(tag: str, name: str) -> Any:
    """The generated module of one operation."""
    return importlib.import_module(f"{PACKAGE}.api.{tag}.{name}")


def test_it_submits_a_task_reads_it_lists_it_and_is_told_what_is_wrong(generated: Any) -> None:
    furnish()
    acme = client_of("acme")
    models = importlib.import_module(f"{PACKAGE}.models")
    client = generated.AuthenticatedClient(
        base_url="http://testserver",
        token=acme.text,
        httpx_args={"transport": httpx.WSGITransport(app=get_wsgi_application())},
    )
    task = models.TaskIn(handler=HANDLER, name="made by a machine", priority=3, category=models.Category("urgent"))
    submitted = operation("tasks", "submit_tasks").sync(client=client, body=task, idempotency_key="once")
    again = operation("tasks", "submit_tasks").sync(client=client, body=task, idempotency_key="once")
    assert (submitted.created, again) == (True, submitted)

    found = operation("tasks", "get_task").sync(submitted.id, client=client)
    assert (found.name, found.priority, found.category.value) == ("made by a machine", 3, "urgent")
    assert (found.state.value, found.status.value) == ("ready", "waiting")
    page = operation("tasks", "list_tasks").sync(client=client, state="ready", limit=1)
    assert ([item.id for item in page.items], page.next_cursor) == ([submitted.id], None)

    wanted = models.BulkIn.from_dict({"filter": {"name": "made by a machine"}})
    cancelled = operation("tasks", "cancel_tasks").sync(client=client, body=wanted)
    assert cancelled.task_ids == [submitted.id]
    refused = operation("tasks", "submit_tasks").sync(client=client, body=models.TaskIn(handler=HANDLER, priority=5000))
    assert isinstance(refused, models.ProblemOut)
    assert (refused.code, refused.field) == ("invalid_input", "priority")

    Handler.objects.create(name="mail.send", schema=schema_of(send))
    attached = models.MailSendAttached(file=submitted.id, size="1.5")
    arguments = models.MailSendArguments(to="a@example.org", subject="from a typed client", files=[attached])
    sent = operation("mail", "mail_send").sync(client=client, body=arguments, category=models.Category("urgent"))
    found = operation("tasks", "get_task").sync(sent.id, client=client)
    assert (found.handler, found.kwargs.additional_properties["subject"]) == ("mail.send", "from a typed client")


def test_it_sends_a_file_in_pieces(generated: Any) -> None:
    furnish()
    client = generated.AuthenticatedClient(
        base_url="http://testserver",
        token=client_of("acme").text,
        httpx_args={"transport": httpx.WSGITransport(app=get_wsgi_application())},
    )
    file = operation("uploads", "begin_upload").sync(client=client, upload_length=4)
    types = importlib.import_module(f"{PACKAGE}.types")
    for offset, piece in ((0, b"ab"), (2, b"cd")):
        body = types.File(payload=io.BytesIO(piece))
        sent = operation("uploads", "add_to_upload").sync_detailed(
            file.id, client=client, body=body, upload_offset=offset
        )
        assert sent.status_code == 204, sent.content
    assert operation("uploads", "get_upload").sync(file.id, client=client).received == 4
