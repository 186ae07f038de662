"""Files in pieces: uploads that go on where they broke off, downloads of a range, in the database or a folder beside it."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import obstore
import pytest
from django.utils import timezone
from obstore.store import from_url

from scheduler_ext.core.work import File
from scheduler_ext.task.context import TaskContext
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.models import Artifact, EmptiedFolder, LiveTask, Upload, UploadPart
from slackwater_tasks.runtime import objects
from slackwater_tasks.runtime.artifacts import PgArtifacts
from slackwater_tasks.runtime.attempt import own_connection
from slackwater_tasks.runtime.task_backend import PgTaskBackend
from slackwater_tasks.upkeep.retention import delete_tenant, prune
from tests.support.api import Answer, ApiClient, client_of, forget_lookups
from tests.support.hand_worker import HandWorker

pytestmark = pytest.mark.django_db(transaction=True)
TEXT = bytes(range(256)) * 1_000
PIECE = {"Content-Type": "application/offset+octet-stream", "Tus-Resumable": "1.0.0"}


BUCKET = os.environ.get("SLACKWATER_TEST_BUCKET", "")
"""``s3://bucket/prefix`` of a server of that protocol to try it on, with the variables ``AWS_…``."""


@dataclass(frozen=True)
class Store:
    """A folder or a bucket."""

    url: str

    def objects(self) -> list[bytes]:
        """What lies there."""
        store = from_url(self.url)
        return [bytes(obstore.get(store, one["path"]).bytes()) for page in obstore.list(store) for one in page]


@pytest.fixture(params=["database", "folder", *(["bucket"] if BUCKET else [])])
def store(request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> Store | None:
    """Where content lies; nothing where that is the database."""
    if request.param == "database":
        return None
    url = f"file://{tmp_path}/objects" if request.param == "folder" else f"{BUCKET}/{uuid4().hex}"
    settings.SLACKWATER = {**settings.SLACKWATER, "ARTIFACTS_URL": url}
    return Store(url)


@pytest.fixture
def db() -> Iterator[Database]:
    found = Database("slackwater test")
    yield found
    found.close()


def begin(client: ApiClient, size: int, name: str = "rows.csv") -> Answer:
    told = f"filename {base64.b64encode(name.encode()).decode()},filetype {base64.b64encode(b'text/csv').decode()},x"
    return client.call("POST", "/uploads", Upload_Length=str(size), Upload_Metadata=told)


def add(client: ApiClient, path: str, start: int, content: bytes, **headers: str) -> Answer:
    return client.call("PATCH", path, None, raw=content, **{**PIECE, "Upload-Offset": str(start), **headers})


def whole(client: ApiClient, content: bytes = TEXT) -> str:
    """The id of an upload that is whole."""
    made = begin(client, len(content))
    assert made.status == 201, made.body
    assert add(client, f"/uploads/{made.body['id']}", 0, content).status == 204
    return str(made.body["id"])


def test_an_upload_goes_on_where_it_broke_off(acme: ApiClient, store: Store | None) -> None:
    made = begin(acme, len(TEXT))
    path = f"/uploads/{made.body['id']}"
    assert (made.status, made.headers["Location"]) == (201, f"/api/v1{path}")
    assert (made.body["name"], made.body["content_type"], made.body["size"]) == ("rows.csv", "text/csv", len(TEXT))
    assert "Upload-Expires" in made.headers
    first = add(acme, path, 0, TEXT[:100_000])
    assert (first.status, first.headers["Upload-Offset"]) == (204, "100000")
    again = add(acme, path, 0, TEXT[:100_000])  # its answer was lost
    assert (again.status, again.body["field"]) == (409, "Upload-Offset")
    assert acme.get(f"{path}/content").status == 409
    head = acme.call("HEAD", path)
    assert (head.headers["Upload-Offset"], head.headers["Upload-Length"]) == ("100000", str(len(TEXT)))
    assert add(acme, path, 100_000, TEXT).status == 413
    for start in range(100_000, len(TEXT), 70_000):
        assert add(acme, path, start, TEXT[start : start + 70_000]).status == 204
    row = acme.get(path).body
    assert (row["received"], row["sha256"]) == (len(TEXT), hashlib.sha256(TEXT).hexdigest())
    assert (row["finished_at"] is None, row["expires_at"] is None) == (False, False)
    assert acme.get(f"{path}/content").body == TEXT
    assert [item["id"] for item in acme.get("/uploads?name_pattern=rows.*").body["items"]] == [row["id"]]
    if store is not None:
        assert sum(map(len, store.objects())) == len(TEXT)
        assert all(part.content is None for part in UploadPart._plain.all())
    stranger = client_of("other")
    for answer in (
        stranger.get(path), stranger.get(f"{path}/content"), stranger.call("DELETE", path),
        add(stranger, path, 0, b"x"),
    ):  # fmt: skip
        assert answer.status == 404
    assert acme.call("DELETE", path).status == 204
    assert acme.get(path).status == 404


RANGES = [
    ("bytes=0-9", 206, 0, 9),
    ("bytes=69999-70001", 206, 69_999, 70_001),
    ("bytes=-5", 206, 255_995, 255_999),
    ("bytes=255999-", 206, 255_999, 255_999),
    ("bytes=5-999999999", 206, 5, 255_999),
    ("bytes=9-5", 200, 0, 255_999),
    ("bytes=0-1,5-6", 200, 0, 255_999),
    ("pages=1-2", 200, 0, 255_999),
    ("bytes=256000-", 416, 0, 0),
    ("bytes=-0", 416, 0, 0),
]


def test_a_range_is_answered_alone(acme: ApiClient) -> None:
    path = f"/uploads/{whole(acme)}/content"
    for asked, status, first, last in RANGES:
        got = acme.get(path, Range=asked)
        assert got.status == status, asked
        if status == 416:
            assert (got.code, got.headers["Content-Range"]) == ("range_not_satisfiable", "bytes */256000")
            continue
        assert (got.body, got.headers["Content-Length"]) == (TEXT[first : last + 1], str(last - first + 1)), asked
        assert got.headers.get("Content-Range") == (f"bytes {first}-{last}/256000" if status == 206 else None)


def test_a_range_is_of_the_content_that_the_client_has(acme: ApiClient, store: Store | None, db: Database) -> None:
    task = HandWorker().start(UUID(acme.task()))[0]
    artifacts = PgArtifacts(task, db)
    artifacts.save_artifacts([File(name="a/rows.csv", content=TEXT)])
    path = f"/tasks/{task.task_id}/artifacts/a/rows.csv"
    got = acme.get(path)
    tag = got.headers["ETag"]
    assert (got.body, got.headers["Accept-Ranges"]) == (TEXT, "bytes")
    assert acme.get(path, **{"If-None-Match": tag}).status == 304
    part = acme.get(path, Range="bytes=100-199", **{"If-Range": tag})
    assert (part.status, part.body) == (206, TEXT[100:200])
    artifacts.save_artifacts([File(name="a/rows.csv", content=b"others")])
    part = acme.get(path, Range="bytes=100-199", **{"If-Range": tag})
    assert (part.status, part.body) == (200, b"others")
    if store is not None:
        assert [bytes(row.content or b"") for row in Artifact._plain.all()] == [b""]
        later(db)
        assert store.objects() == [b"others"], "what was replaced goes"


def later(db: Database) -> None:
    """Upkeep, eleven minutes from now."""
    EmptiedFolder.objects.update(at=timezone.now() - timedelta(minutes=11))
    objects.empty(db)


def test_nothing_stays_of_what_is_gone(acme: ApiClient, store: Store | None, db: Database) -> None:
    finished, broken_off = whole(acme), begin(acme, 10).body["id"]
    add(acme, f"/uploads/{broken_off}", 0, b"abc")
    task = HandWorker().start(UUID(acme.task()))[0]
    PgArtifacts(task, db).save_artifacts([File(name="a", content=b"x"), File(name="b", content=b"y")])
    assert prune(db) == 0, "nothing is old"
    Upload._plain.filter(pk=broken_off).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert prune(db) == 1
    assert [str(row.pk) for row in Upload._plain.all()] == [finished]
    HandWorker("hand-2").end([task])
    LiveTask._plain.all().delete()
    delete_tenant(acme.tenant)
    assert not UploadPart._plain.exists()
    later(db)
    assert store is None or store.objects() == []


def test_a_handler_reads_what_was_uploaded(acme: ApiClient, store: Store | None, request: Any) -> None:
    class Work:
        """The part of the ledger that the context needs here."""

        def backend(self, task: Any) -> PgTaskBackend:
            return PgTaskBackend(task)

    request.addfinalizer(lambda: own_connection().close())
    found, unfinished, foreign = whole(acme), begin(acme, 10).body["id"], whole(client_of("other"))
    context = TaskContext(HandWorker().start(UUID(acme.task()))[0], Work())  # type: ignore[arg-type]
    with context.open_upload(found) as file:
        assert file.read(10) == TEXT[:10]
        file.seek(-10, 2)
        assert file.read() == TEXT[-10:]
        file.seek(0)
        assert file.read() == TEXT
    for wrong in (unfinished, foreign, "nothing"):
        with pytest.raises(Exception, match="upload"):
            context.open_upload(wrong)


def test_the_protocols_headers_are_those_that_its_clients_need(acme: ApiClient) -> None:
    upload = f"/uploads/{begin(acme, 4).body['id']}"
    assert acme.call("HEAD", upload).headers["Cache-Control"] == "no-store"
    assert acme.get(upload).headers["Cache-Control"] == "private, no-cache", "with an ETag to ask by"
    other: dict[str, Any] = {"Tus-Resumable": "0.2.2"}
    for answer in (
        acme.call("HEAD", upload, **other), acme.call("DELETE", upload, **other), add(acme, upload, 0, b"abcd", **other),
        acme.post("/uploads", raw=b"", **{"Upload-Length": "4"}, **other),
    ):  # fmt: skip
        assert answer.status == 412
        assert (answer.headers["Tus-Version"], answer.headers["Tus-Resumable"]) == ("1.0.0", "1.0.0")
    assert acme.call("HEAD", upload).headers["Upload-Offset"] == "0", "nothing was done"
    refused = add(acme, upload, 3, b"d")
    assert (refused.status, refused.headers["Tus-Resumable"]) == (409, "1.0.0")


def test_what_is_wrong_is_named(acme: ApiClient) -> None:
    acme.tenant.plan.max_upload_bytes = 1_000
    acme.tenant.plan.save()
    forget_lookups()
    assert begin(acme, 600).status == 201
    more = begin(acme, 401)
    assert (more.status, more.body["field"], more.body["limit"]) == (413, "Upload-Length", 1_000)
    empty = begin(acme, 0)
    assert (empty.status, empty.body["sha256"]) == (201, hashlib.sha256(b"").hexdigest())
    path = f"/uploads/{begin(acme, 100).body['id']}"
    for headers, status, field in (
        ({"Upload-Length": "-1"}, 422, "Upload-Length"),
        ({}, 422, "Upload-Length"),
        ({"Upload-Length": "1", "Upload-Metadata": "filename ?"}, 422, "Upload-Metadata"),
        ({"Upload-Length": "1", "Upload-Metadata": "filename Li4v"}, 422, "name"),
        ({"Upload-Length": "1", "Tus-Resumable": "0.9.0"}, 412, None),
    ):
        got = acme.post("/uploads", raw=b"", **headers)
        assert (got.status, got.body.get("field")) == (status, field), headers
    for sent, status in (
        ({"Upload-Offset": "x"}, 422), ({"Content-Type": "application/json"}, 415), ({"Tus-Resumable": "2.0.0"}, 412),
    ):  # fmt: skip
        assert add(acme, path, 0, b"abc", **sent).status == status, sent
