"""A submission as the server reads it before any view: shared by the fast refusal and the group commit."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any, Final

from slackwater_api.http.auth import Principal, remembered

PATH: Final = "/api/v1/tasks"
ONE: Final = re.compile(rb"\s*\{")
"""How a body begins that submits one task: what several cost, and whether they fit at all, the view decides."""


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """A request that submits one task as JSON."""

    scope: Any
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def authorization(self) -> str:
        """The header that names the key."""
        return self.headers.get(b"authorization", b"").decode("latin-1")

    @property
    def principal(self) -> Principal | None:
        """The owner of the key, if this process remembers it."""
        return remembered.known(self.authorization)


def read(scope: Any, headers: dict[bytes, bytes], body: Any) -> TaskRequest | None:
    """The request as a submission of one task, or None for any other; ``body`` has been received in whole."""
    if scope["method"] != "POST" or scope["path"] != PATH or scope["query_string"] or type(body) is not io.BytesIO:
        return None
    if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
        return None
    text = body.getvalue()
    return TaskRequest(scope, headers, text) if ONE.match(text) else None
