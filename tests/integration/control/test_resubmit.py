"""What has ended is run again with edits: as a new task that names the old one, or in place, from a node of a workflow."""

from __future__ import annotations

from uuid import UUID

import pytest

from scheduler_ext.core.states import Outcome
from slackwater_resources.models import Handler
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.models import DeadLetter, Task
from tests.support.api import HANDLER, ApiClient, client_of
from tests.support.hand_worker import HandWorker

pytestmark = pytest.mark.django_db
SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}, "n": {"type": "integer"}}, "required": ["to"]}


def test_a_dead_letter_is_submitted_anew_with_other_arguments(acme: ApiClient) -> None:
    worker = HandWorker()
    mail = {
        "handler": HANDLER, "name": "mail", "depends_on": ["first"], "tags": ["eu"], "priority": 5, "total_attempts": 1,
        "kwargs": {"to": "a", "n": 1, "deep": {"x": 1, "y": {"$from": 2}}, "up": {"$from": "first"}},
        "metadata": {"order": "7", "by": "me"}, "execution_cap_s": 40, "expires_in_s": 900,
    }  # fmt: skip
    flow = acme.post("/workflows", {"tasks": [{"name": "first", "handler": HANDLER}, mail]}).body
    parent, old = flow["task_ids"]
    assert acme.post(f"/tasks/{old}/resubmit", {}).code == "conflict"
    worker.run(UUID(parent), result="3")
    worker.run(UUID(old), outcome=Outcome.FAILED, error="ValueError: no")
    assert DeadLetter._plain.filter(task_id=old).exists()
    patch = {"kwargs": {"n": None, "deep": {"x": 2}}, "metadata": {"order": "8", "by": None}}
    patch |= {"tier": "regular", "start_in_s": 5, "retry": {"base_s": None, "factor": 3}}
    made = acme.post(f"/tasks/{old}/resubmit", patch, Idempotency_Key="anew")
    assert (made.status, made.headers["Location"]) == (201, f"/api/v1/tasks/{made.body['id']}")
    again = acme.post(f"/tasks/{old}/resubmit", patch, Idempotency_Key="anew")
    assert (again.body, again.headers["Idempotency-Replayed"]) == (made.body, "true")
    new = acme.get(f"/tasks/{made.body['id']}").body
    assert new["kwargs"] == {"to": "a", "deep": {"x": 2, "y": {"$from": 2}}, "up": {"$from": "first"}}
    assert (new["copied_from"], new["depends_on"], new["tier"]) == (old, [parent], "regular")
    assert new["workflow_id"] is None
    assert (new["metadata"], new["tags"], new["priority"]) == ({"order": "8"}, ["eu"], 5)
    assert new["retry"] == {"factor": 3}
    assert (new["execution_cap_s"], new["total_attempts"], new["expires_at"]) == (40, 1, None)
    assert new["state"] == "scheduled"
    last = acme.get(f"/tasks/{old}/history").body["items"][-1]
    assert (last["reason"], last["detail"]["changed"]) == (f"submitted anew as {new['id']}", sorted(patch))
    for wrong, field in (
        ({"handler": "demo.add"}, "handler"), ({"tier": "huge"}, "tier"), ({"nonsense": 1}, "nonsense"),
        ({"depends_on": []}, "kwargs.up"), ({"kwargs": [1]}, "kwargs"),
        ({"metadata": {"": None}}, "metadata"), ({"retry": {"base": None}}, "retry.base"),
    ):  # fmt: skip
        assert acme.post(f"/tasks/{old}/resubmit", wrong).body["field"] == field
    many = acme.post(f"/tasks/{old}/resubmit", {"metadata": {f"n{n}": "" for n in range(31)}})
    assert (many.status, many.code) == (422, "does_not_fit"), "of the document, but with what it has there are too many"
    assert client_of("other").post(f"/tasks/{old}/resubmit", {}).status == 404


def test_a_workflow_runs_again_from_a_node_with_edits(acme: ApiClient) -> None:
    worker = HandWorker()
    Handler.objects.filter(name=HANDLER).update(schema=SCHEMA)
    reference_cache.forget()
    tasks = [
        {"name": "a", "handler": HANDLER, "kwargs": {"to": "x"}},
        {"name": "b", "handler": HANDLER, "kwargs": {"to": "x", "n": 1}, "depends_on": ["a"]},
        {"name": "c", "handler": HANDLER, "kwargs": {"to": "x"}, "depends_on": ["b"]},
    ]
    flow = acme.post("/workflows", {"tasks": tasks}).body
    first, second, third = map(UUID, flow["task_ids"])
    for each in (first, second, third):
        worker.run(each)
    path = f"/workflows/{flow['id']}/retry"
    assert acme.post(path, {"changes": {"kwargs": {}}}).body["field"] == "changes"
    for wrong, field in (({"kwargs": {"n": "x"}}, "changes.kwargs.n"), ({"start_in_s": 1}, "changes.start_in_s")):
        assert acme.post(path, {"task_id": str(second), "changes": wrong}).body["field"] == field
    assert Task._plain.get(pk=second).state is not None
    changes = {"kwargs": {"n": 2}, "execution_cap_s": 9}
    assert set(acme.post(path, {"task_id": str(second), "changes": changes}).body["task_ids"]) == {
        str(second), str(third),
    }  # fmt: skip
    now = acme.get(f"/tasks/{second}").body
    assert (now["state"], now["kwargs"], now["execution_cap_s"]) == ("ready", {"to": "x", "n": 2}, 9)
    told = acme.get(f"/tasks/{second}/history").body["items"]
    assert [entry["detail"] for entry in told if entry["reason"] == "edited"] == [
        {"kwargs": [{"to": "x", "n": 1}, {"to": "x", "n": 2}], "execution_cap_s": [300, 9]}
    ]
