"""Artifacts: named files that a task leaves behind. A name is a relative path that cannot lead out of its folder."""

from __future__ import annotations

from typing import Final

from scheduler_ext.core.errors import InvalidInput

MAX_NAME: Final = 200
MAX_ARTIFACTS: Final = 200
"""The most artifacts one task may have."""


class ArtifactsTooLarge(InvalidInput):
    """The task's artifacts are larger than its tenant's plan allows."""

    code = "too_large"


def check_name(name: str) -> str:
    """Return ``name`` if it is a path inside (no ``..``, no empty part, nothing unprintable); else ``InvalidInput``."""
    parts = name.split("/")
    if not name or len(name) > MAX_NAME or any(part in ("", ".", "..") for part in parts):
        raise InvalidInput(f"must be a relative path of at most {MAX_NAME} characters without . or ..", field="name")
    if not name.isprintable() or "\\" in name:
        raise InvalidInput("must be printable, without backslashes", field="name")
    return name


def check_type(content_type: str) -> str:
    """Return ``content_type`` if it can stand in a header; else ``InvalidInput``."""
    kind, slash, rest = content_type.partition("/")
    if not (kind and slash and rest) or len(content_type) > 100:
        raise InvalidInput("must look like text/plain", field="content_type")
    if not content_type.isascii() or not content_type.isprintable():
        raise InvalidInput("must be printable ASCII", field="content_type")
    return content_type
