"""A client's trace through the real processes: header, worker, handler and script, collector."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from scheduler_ext.core.states import TaskState
from slackwater_tasks.submission.service import store_script
from slackwater_tenants.services import create_api_key
from tests.support.api import ALL_SCOPES, ApiClient
from tests.support.collector import Seen, endpoint, spans
from tests.support.platform import Platform
from tests.support.receiver import Receiver, receiving
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]
TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE}-{CLIENT}-01"}
SCRIPT = b'printf \'"%s"\' "$TRACEPARENT" >"$SLACKWATER_RESULT"\n'


def of(receiver: Receiver, task_id: UUID) -> list[Seen]:
    return [span for span in spans(receiver) if span.about["messaging.message.id"] == str(task_id)]


def test_spans_of_a_retried_task_and_of_a_script_arrive_under_the_clients(platform: Platform, settings: Any) -> None:
    with receiving() as receiver:
        settings.SLACKWATER = {**settings.SLACKWATER, "TRACE_ENDPOINT": endpoint(receiver)}
        platform.env |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.port}",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-key=secret",
            "OTEL_SERVICE_NAME": "slackwater-test",
        }
        platform.up()
        client = ApiClient(platform.tenant, *create_api_key(platform.tenant, "test", ALL_SCOPES))
        script = store_script(platform.tenant, "trace.sh", SCRIPT)
        failing = {"handler": "demo.fail", "kwargs": {"times": 1}}
        retried = UUID(client.post("/tasks", failing, **HEADERS).body["id"])
        scripted = UUID(client.post("/tasks", {"script": script.sha256}, **HEADERS).body["id"])
        asking = UUID(client.post("/tasks", {"handler": "test.traced"}, **HEADERS).body["id"])
        untraced = UUID(client.post("/tasks", {"handler": "demo.echo"}).body["id"])
        assert platform.wait(retried).state == TaskState.SUCCEEDED
        assert platform.wait(untraced).state == TaskState.SUCCEEDED
        given = platform.wait(scripted).result
        told: Any = platform.wait(asking).result
        child = UUID(told["child"])
        platform.wait(child)
        wait_until(
            lambda: all(of(receiver, task_id) for task_id in (retried, scripted, asking, child)),
            message="all arrive",
        )
        found = of(receiver, retried)
        whole, runs = found[0], [span for span in found if span.what == "process"]
        assert {span.trace_id for span in found} == {TRACE}
        assert (whole.what, whole.parent_id, whole.service) == ("task", CLIENT, "slackwater-test")
        assert [(run.parent_id, run.is_error, run.about["slackwater.attempt.number"]) for run in runs] == [
            (whole.span_id, True, 1), (whole.span_id, False, 2)
        ]  # fmt: skip
        assert runs[0].message == "RuntimeError: told to fail"
        assert runs[0].end <= runs[1].start
        (run,) = [span for span in of(receiver, scripted) if span.what == "process"]
        assert given == f"00-{TRACE}-{run.span_id}-01"
        (run,) = [span for span in of(receiver, asking) if span.what == "process"]
        assert told["headers"] == {"traceparent": f"00-{TRACE}-{run.span_id}-01"}
        assert next((span.trace_id, span.parent_id) for span in of(receiver, child)) == (TRACE, run.span_id)
        assert of(receiver, untraced) == []
        assert {request.headers["x-key"] for request in receiver.got} == {"secret"}
