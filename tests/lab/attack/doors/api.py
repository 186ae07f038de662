"""The API: heads that one part of a system could read otherwise than another, and what is open without a key."""

from __future__ import annotations

import gzip
import http.client
import time

from tests.lab.attack.ground import Ground
from tests.lab.attack.probes import probe
from tests.lab.attack.wire import exchange

PATHS = ("/api/v1/tasks", "/api/v1/events", "/api/schema/", "/metrics", "/readyz", "/healthz", "/admin/login/")


@probe("api", expected="400")
def a_foreign_host(ground: Ground) -> str:
    """Each page is asked under a name that is not its own, as a page in a browser does by DNS rebinding."""
    found = {ground.ask(path, key=True, headers={"Host": "evil.example"}).status for path in PATHS}
    return " ".join(map(str, sorted(found)))


@probe("api", expected="400")
def a_header_sent_twice(ground: Ground) -> str:
    """Each header that decides who asks, or where the body ends, is sent twice, on each kind of page."""
    key = f"Authorization: Bearer {ground.setting('SLACKWATER_KEY')}"
    doubled = [
        [key, "Authorization: Bearer nonsense"],
        [key, "Content-Type: application/json", "Content-Type: text/plain"],
        [key, "Content-Length: 2", "Content-Length: 3"],
        [key, "Host: evil.example"],
        [key, "Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
    ]
    found = {exchange(ground, "POST", path, *headers, body=b"{}").status for path in PATHS for headers in doubled}
    return " ".join(map(str, sorted(found)))


@probe("api", expected="400")
def thousands_of_parameters(ground: Ground) -> str:
    """A query of two thousand parameters."""
    return str(ground.ask("/api/v1/tasks?" + "a=1&" * 2_000, key=True).status)


@probe("api", expected="cheap")
def the_document_asked_for_again_and_again(ground: Ground) -> str:
    """The OpenAPI document, which needs no key and is large, is asked for fifty times."""
    ground.ask("/api/schema/")
    began, asked = time.monotonic(), ground.ask("/api/schema/", headers={"Accept-Encoding": "gzip"})
    for _ in range(50):
        ground.ask("/api/schema/", headers={"Accept-Encoding": "gzip"})
    each = (time.monotonic() - began) / 51
    small = len(asked.body) * 5 < len(gzip.decompress(asked.body))
    return "cheap" if small and each < 0.1 else f"{len(asked.body)} bytes, {each:.3f} s each"


@probe("api", expected="403")
def metrics_through_a_proxy(ground: Ground) -> str:
    """The metrics are asked for without a token through a proxy on the same machine."""
    return str(ground.ask("/metrics", headers={"X-Forwarded-For": "203.0.113.7"}).status)


@probe("api", expected="400 or 431, and no other request read")
def requests_inside_requests(ground: Ground) -> str:
    """Bodies whose end two servers would see at different places; the rest would be another client's request."""
    inner = b"GET /api/v1/organization HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    answers = [
        exchange(ground, "POST", "/api/v1/tasks", *headers, body=body + inner)
        for headers, body in (
            (["Content-Length: 5", "Content-Length: 6"], b"0\r\n\r\n"),
            (["Transfer-Encoding: xchunked"], b"0\r\n\r\n"),
            (["Transfer-Encoding : chunked"], b"0\r\n\r\n"),
            (["Content-Length: +5"], b"0\r\n\r\n"),
        )
    ]
    if all(answer.status in {http.client.BAD_REQUEST, 431} and answer.count == 1 for answer in answers):
        return "400 or 431, and no other request read"
    return " ".join(f"{answer.status} ({answer.count} answers)" for answer in answers)
