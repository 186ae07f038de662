"""A collector of traces: what a real HTTP server was sent by OTLP, read with the protocol's own messages."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.receiver import Received, Receiver

KINDS = {1: "internal", 3: "client", 4: "producer", 5: "consumer"}
ERROR = 2


@dataclass(frozen=True)
class Seen:
    """A span that arrived."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    start: int
    end: int
    about: dict[str, Any]
    is_error: bool
    message: str
    events: list[str]
    links: list[str]
    state: str
    service: str

    @property
    def what(self) -> str:
        """The first word of its name."""
        return self.name.split()[0]


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


def read(request: Received) -> list[Seen]:
    """The spans of one request."""
    assert request.path == "/v1/traces"
    assert request.headers["content-type"] == "application/x-protobuf"
    body = request.body
    if request.headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    found = []
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        of = {pair.key: _value(pair.value) for pair in resource.resource.attributes}
        for scope in resource.scope_spans:
            assert scope.scope.name == "slackwater"
            found += [_seen(span, of["service.name"]) for span in scope.spans]
    return found


def _seen(span: Any, service: str) -> Seen:
    return Seen(
        name=span.name, trace_id=span.trace_id.hex(), span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(), kind=KINDS[span.kind], start=span.start_time_unix_nano,
        end=span.end_time_unix_nano, about={pair.key: _value(pair.value) for pair in span.attributes},
        is_error=span.status.code == ERROR, message=span.status.message,
        events=[event.name for event in span.events], links=[link.span_id.hex() for link in span.links],
        state=span.trace_state, service=service,
    )  # fmt: skip


def spans(receiver: Receiver) -> list[Seen]:
    """All that arrived, in order."""
    return [span for request in receiver.got for span in read(request)]


def endpoint(receiver: Receiver) -> str:
    """Where it takes traces."""
    return f"http://127.0.0.1:{receiver.port}/v1/traces"
