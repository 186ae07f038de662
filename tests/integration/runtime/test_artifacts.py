"""Files that tasks leave behind: saved within the plan and under the fence, downloaded by their own tenant alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.test import Client

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.work import File, Started
from scheduler_ext.task.artifacts import ArtifactsTooLarge
from scheduler_ext.task.context import TaskContext
from scheduler_ext.task.effects import AttemptReplaced
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.models import Artifact, LiveTask, Task
from slackwater_tasks.runtime.artifacts import PgArtifacts
from slackwater_tasks.runtime.attempt import own_connection
from slackwater_tasks.runtime.task_backend import PgTaskBackend
from slackwater_tasks.upkeep.retention import delete_tenant
from tests.support.api import ApiClient, client_of
from tests.support.hand_worker import HandWorker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def started(acme: ApiClient) -> Started:
    """A running task."""
    return HandWorker().start(UUID(acme.task()))[0]


@pytest.fixture
def store(started: Started) -> Iterator[PgArtifacts]:
    db = Database("slackwater test")
    yield PgArtifacts(started, db)
    db.close()


def test_a_handler_leaves_files_that_clients_list_and_download(
    acme: ApiClient, started: Started, request: pytest.FixtureRequest
) -> None:
    class Store:
        """The part of the ledger that the context needs here."""

        def backend(self, task: Started) -> PgTaskBackend:
            return PgTaskBackend(task)

    request.addfinalizer(lambda: own_connection().close())
    context = TaskContext(started, Store())  # type: ignore[arg-type]
    context.save_artifact("report.txt", "grüß")
    context.save_artifact("images/one.png", b"\x89PNG", "image/png")
    context.save_artifact("report.txt", "again")
    path = f"/tasks/{started.task_id}/artifacts"
    rows = acme.get(path).body["items"]
    assert [(r["name"], r["content_type"], r["size"]) for r in rows] == [
        ("images/one.png", "image/png", 4), ("report.txt", "text/plain", 5),
    ]  # fmt: skip
    got = acme.get(f"{path}/images/one.png")
    assert (got.status, got.body) == (200, b"\x89PNG")
    assert got.headers["Content-Type"] == "application/octet-stream"
    assert got.headers["Content-Disposition"] == 'attachment; filename="one.png"'
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    for name in ("nothing", "../report.txt", "images", "%00", "report.txt/"):
        assert acme.get(f"{path}/{name}").status == 404, name
    assert client_of("other").get(f"{path}/report.txt").status == 404


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/", "a\x00", "a\nb", "a\\b", "x" * 201]
)
def test_no_name_leads_out(store: PgArtifacts, name: str) -> None:
    with pytest.raises(InvalidInput):
        store.save_artifacts([File(name=name, content=b"")])
    assert not Artifact._plain.exists()


def test_no_type_splits_a_header(store: PgArtifacts) -> None:
    with pytest.raises(InvalidInput, match="content_type"):
        store.save_artifacts([File(name="a", content=b"", content_type="text/plain\r\nX: y")])


def test_the_plan_says_how_much_together(acme: ApiClient, store: PgArtifacts) -> None:
    acme.tenant.plan.max_artifact_bytes = 10
    acme.tenant.plan.save()
    store.save_artifacts([File(name="a", content=b"x" * 6)])
    with pytest.raises(ArtifactsTooLarge, match="12 bytes, the plan allows 10"):
        store.save_artifacts([File(name="b", content=b"x" * 5), File(name="c", content=b"x")])
    assert [row.name for row in Artifact._plain.all()] == ["a"]
    store.save_artifacts([File(name="a", content=b"x" * 10)])  # it replaces the other


def test_an_attempt_that_lost_its_task_keeps_nothing(started: Started, store: PgArtifacts) -> None:
    late = PgArtifacts(replace(started, fence=started.fence - 1), store.db)
    with pytest.raises(AttemptReplaced):
        late.save_artifacts([File(name="a", content=b"x")])


def test_they_go_with_their_task(acme: ApiClient, started: Started, store: PgArtifacts) -> None:
    store.save_artifacts([File(name="a", content=b"x")])
    assert Task._plain.exists()
    HandWorker("hand-2").end([started])
    LiveTask._plain.all().delete()
    delete_tenant(acme.tenant)
    assert not Artifact._plain.exists()


def test_operators_download_them_in_the_admin(store: PgArtifacts) -> None:
    store.save_artifacts([File(name="a/b.txt", content=b"<script>")])
    row = Artifact._plain.get()
    url = f"/admin/slackwater_tasks/artifact/{row.pk}/"
    stranger, root = Client(), Client()
    stranger.force_login(User.objects.create_user("staff", is_staff=True))
    root.force_login(User.objects.create_superuser("root"))
    assert stranger.get(f"{url}download/").status_code == 403
    assert f"{url}download/" in root.get(f"{url}change/").content.decode()
    got = root.get(f"{url}download/")
    assert (b"".join(got), got.headers["Content-Disposition"]) == (b"<script>", 'attachment; filename="b.txt"')
