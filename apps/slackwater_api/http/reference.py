"""The OpenAPI document, the interactive page on it, and the page of error codes that problems point to."""

from __future__ import annotations

import functools
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response, patch_cache_control, patch_vary_headers
from django.utils.encoding import force_bytes
from django.utils.html import format_html, format_html_join
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import (
    OpenApiJsonRenderer,
    OpenApiJsonRenderer2,
    OpenApiYamlRenderer,
    OpenApiYamlRenderer2,
)
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.request import Request
from rest_framework.views import APIView

from slackwater_api.http.compression import ACCEPTS, compressed, encode
from slackwater_api.http.operation import tag_of
from slackwater_api.http.problems import STATUS


@functools.cache
def document() -> dict[str, Any]:
    """The OpenAPI document, made once: it changes with the code alone."""
    found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return found


@functools.cache
def _written(media_type: str) -> tuple[bytes, bytes]:
    """The document in one of its forms: plain, and compressed."""
    renderer = next(each for each in OpenApi.renderer_classes if each.media_type == media_type)
    content = force_bytes(renderer().render(document(), renderer_context={}))
    return content, compressed(content)


class OpenApi(APIView):
    """``/api/schema/``: JSON, or YAML where that is asked for. Written once, so that asking costs next to nothing."""

    authentication_classes = []
    permission_classes = []
    renderer_classes = [OpenApiJsonRenderer2, OpenApiJsonRenderer, OpenApiYamlRenderer, OpenApiYamlRenderer2]
    schema = None

    def get(self, request: Request) -> HttpResponseBase:
        renderer = request.accepted_renderer
        plain, small = _written(renderer.media_type)
        response = HttpResponse(plain, content_type=renderer.media_type, headers={"ETag": tag_of(plain)})
        if ACCEPTS.search(request.META.get("HTTP_ACCEPT_ENCODING", "").encode("latin-1", "replace")):
            encode(response, small)
        patch_vary_headers(response, ("Accept-Encoding",))
        patch_cache_control(response, max_age=300, public=True)
        return get_conditional_response(request._request, response["ETag"], response=response) or response


class Page(SpectacularSwaggerSplitView):
    """``/api/docs/``: try each endpoint with your key. Its scripts come from this server."""

    authentication_classes = []
    permission_classes = []


@require_safe
def errors_page(request: HttpRequest) -> HttpResponse:
    """``/api/docs/errors``: what each code means."""
    rows = format_html_join(
        "\n",
        '<tr id="{}"><td><code>{}</code></td><td>{}</td><td>{}</td></tr>',
        ((code, code, status, title) for code, (status, title) in STATUS.items()),
    )
    page = format_html(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Error codes</title>"
        "<h1>Error codes</h1><table><tr><th>code<th>status<th>meaning</tr>{}</table></html>",
        rows,
    )
    return HttpResponse(page)
