"""The addresses of version 1, stable from their first day: each stands at its view. The busiest come first."""

from __future__ import annotations

import re

from django.urls import path, re_path, register_converter
from django.urls.converters import StringConverter, UUIDConverter

from slackwater_api.http.endpoint import ApiView
from slackwater_api.v1.views import (
    artifacts,
    bulk,
    graphs,
    handlers,
    keys,
    organization,
    output,
    platform,
    receipts,
    schedules,
    secrets,
    streams,
    tasks,
    templates,
    terminate,
    tickets,
    tiers,
    uploads,
    webhooks,
    work,
)


class Sha256(StringConverter):
    """A SHA-256 in hexadecimal digits."""

    regex = "[0-9a-f]{64}"


class AnyCaseUuid(UUIDConverter):
    """A UUID, whose digits may be capitals, as its standard lets them."""

    regex = UUIDConverter.regex.replace("a-f", "a-fA-F")


register_converter(Sha256, "sha256")
register_converter(AnyCaseUuid, "any_case_uuid")
MODULES = (
    tasks, work, graphs, bulk, artifacts, streams, output, schedules, webhooks, secrets, platform, organization, keys,
    tiers, handlers, tickets, uploads, templates, receipts, terminate,
)  # fmt: skip
PATHS: dict[str, type[ApiView]] = {
    view.path: view
    for module in MODULES
    for view in vars(module).values()
    if isinstance(view, type) and issubclass(view, ApiView) and view.path
}


def _loosely(address: str) -> str:
    """A pattern of the address in which anything may stand for an id; empty where it has none."""
    if "<uuid:" not in address and "<sha256:" not in address:
        return ""
    found = re.sub(r"<(?:uuid|sha256):(\w+)>", r"(?P<\1>[^/]+)", address)
    return "^" + re.sub(r"<(\w+):(\w+)>", lambda m: ".+" if m[1] == "path" else "[^/]+", found) + "$"


urlpatterns = [
    *(path(address.replace("<uuid:", "<any_case_uuid:"), view.as_view()) for address, view in PATHS.items()),
    *(re_path(loose, platform.Nowhere.as_view()) for loose in sorted(set(map(_loosely, PATHS)) - {""})),
    # Whatever else, newlines and nothing included.
    re_path(r"^[\s\S]*$", platform.Nowhere.as_view()),
]
