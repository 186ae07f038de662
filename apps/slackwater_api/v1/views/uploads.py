"""Uploads in pieces, by the protocol tus 1.0 (https://tus.io/protocols/resumable-upload): its core, creation, expiration and
termination; any of its clients will do."""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponseBase
from django.utils.http import http_date
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import Conflict, DoesNotFit, InvalidInput
from scheduler_ext.core.work import DEFAULT_CONTENT_TYPE
from slackwater_api.http import ranges
from slackwater_api.http.body import read_bytes
from slackwater_api.http.endpoint import READ, SUBMIT, ApiView, created
from slackwater_api.http.openapi import describe
from slackwater_api.http.problems import PreconditionFailed, UnsupportedMediaType
from slackwater_api.http.sorting import BY_AGE, Column, PagedList, each, moment, whole
from slackwater_api.v1.filters import UploadFilter
from slackwater_api.v1.shapes.common import listing
from slackwater_tasks.models import Upload
from slackwater_tasks.runtime import uploads

VERSION: Final = "1.0.0"
PIECE: Final = "application/offset+octet-stream"
MAX_METADATA: Final = 4_000


class UploadOut(s.Serializer[Any]):
    """A file that a client uploads."""

    id = s.UUIDField()
    name = s.CharField()
    content_type = s.CharField()
    size = s.IntegerField(help_text="Bytes, as announced.")
    received = s.IntegerField(help_text="Bytes that are here: the next piece begins there.")
    sha256 = s.CharField(allow_null=True, help_text="Null until it is whole.")
    created_at = s.DateTimeField()
    finished_at = s.DateTimeField(allow_null=True, help_text="When it was whole.")
    expires_at = s.DateTimeField(allow_null=True, help_text="When it is deleted; null: never.")


def _header(name: str, description: str, kind: Any = str, *, required: bool = False) -> OpenApiParameter:
    return OpenApiParameter(name, kind, OpenApiParameter.HEADER, description=description, required=required)


COUNT: Final = {"type": "integer", "minimum": 0, "maximum": 2**53}
TUS: Final = _header("Tus-Resumable", f"The version of the protocol: {VERSION}.", {"type": "string", "enum": [VERSION]})
UPLOADS = PagedList(
    present=each(uploads.shown),
    filters=UploadFilter,
    columns={
        "created_at": BY_AGE,
        "name": Column("name"),
        "size": Column("size", whole),
        "expires_at": Column("expires_at", moment, may_lack=True),
    },
    default="-created_at",
)


def _count(request: Request, name: str) -> int:
    text = request.headers.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 17):
        raise InvalidInput("must be a number of bytes", field=name)
    return int(text)


def _check_version(request: Request) -> None:
    if request.headers.get("Tus-Resumable", VERSION) != VERSION:
        raise PreconditionFailed(f"Tus-Resumable: only {VERSION} is spoken here")


def _metadata(text: str) -> dict[str, str]:
    """``Upload-Metadata``: names, each with its value in base64, by comma."""
    if len(text) > MAX_METADATA:
        raise InvalidInput(f"must not be longer than {MAX_METADATA} characters", field="Upload-Metadata")
    found = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        name, _, value = pair.partition(" ")
        try:
            found[name] = base64.b64decode(value.strip(), validate=True).decode()
        except (binascii.Error, ValueError):
            raise DoesNotFit(f"the value of {name[:60]!r} is not UTF-8 in base64", field="Upload-Metadata") from None
    return found


def _told(response: Response, row: Upload) -> Response:
    response["Upload-Offset"], response["Upload-Length"] = str(row.received), str(row.size)
    if row.finished_at is None and row.expires_at is not None:
        response["Upload-Expires"] = http_date(row.expires_at.timestamp())
    return response


class TusView(ApiView):
    """What the protocol wants of each answer."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer a request, with the version that is spoken; where the next piece begins is kept nowhere."""
        response = super().dispatch(request, *args, **kwargs)
        if request.method != "OPTIONS":
            response["Tus-Resumable"] = VERSION
        if response.status_code == 412:
            response["Tus-Version"] = VERSION
        if request.method == "HEAD":
            response["Cache-Control"] = "no-store"
        return response


class Uploads(TusView, path="uploads", tag="uploads"):
    @describe("list_uploads", "List uploads, newest first", READ, {200: listing(UploadOut)}, *UPLOADS.parameters)
    def get(self, request: Request) -> Response:
        return Response(UPLOADS.page(request.query_params, Upload.objects.all()))

    @describe(
        "begin_upload", "Begin an upload", SUBMIT, {201: UploadOut},
        _header("Upload-Length", "The bytes that it will have.", COUNT, required=True),
        _header("Upload-Metadata", "filename and filetype, each with its value in base64, by comma.",
                {"type": "string", "maxLength": MAX_METADATA}), TUS,
        problems=(412, 413),
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Announce a file; its bytes follow with PATCH to the address in ``Location``."""
        _check_version(request)
        told = _metadata(request.headers.get("Upload-Metadata", ""))
        name = told.get("filename") or told.get("name") or "upload"
        kind = told.get("filetype") or told.get("content_type") or DEFAULT_CONTENT_TYPE
        row = uploads.begin(self.tenant, name, _count(request, "Upload-Length"), kind)
        return _told(created(uploads.shown(row), f"/api/v1/uploads/{row.pk}"), row)


class OneUpload(TusView, path="uploads/<uuid:upload_id>", tag="uploads"):
    @describe("get_upload", "Get an upload, and how much of it is here", READ, {200: UploadOut})
    def get(self, request: Request, upload_id: UUID) -> Response:
        """What is known of it; HEAD answers with ``Upload-Offset`` alone, where the next piece begins."""
        if request.method == "HEAD":
            _check_version(request)
        row = uploads.find(upload_id)
        return _told(Response(uploads.shown(row)), row)

    @describe(
        "add_to_upload", "Send the next piece of an upload", SUBMIT, {204: None},
        _header("Upload-Offset", "Where the piece begins: what is here already.", COUNT, required=True), TUS,
        problems=(409, 412), body=OpenApiTypes.BINARY, takes=PIECE,
    )  # fmt: skip
    def patch(self, request: Request, upload_id: UUID) -> Response:
        """A piece as large as a body may be; broken off, ask with HEAD how much is here and go on there."""
        _check_version(request)
        row = uploads.find(upload_id)
        if (request.META.get("CONTENT_TYPE") or "").partition(";")[0].strip().lower() != PIECE:
            raise UnsupportedMediaType(f"The body must be {PIECE}.")
        row = uploads.add(self.tenant, row, _count(request, "Upload-Offset"), read_bytes(request._request))
        return _told(Response(status=204), row)

    @describe("delete_upload", "Delete an upload", SUBMIT, {204: None}, conditional=True)
    def delete(self, request: Request, upload_id: UUID) -> Response:
        """Delete it, whole or not; tasks that read it from now on fail."""
        _check_version(request)
        with self.unchanged(Upload.objects.filter(pk=upload_id)):
            uploads.delete(uploads.find(upload_id))
        return Response(status=204)


class UploadContent(ApiView, path="uploads/<uuid:upload_id>/content", tag="uploads"):
    @describe(
        "get_upload_content", "Download an upload", READ, {200: OpenApiTypes.BINARY, 206: OpenApiTypes.BINARY},
        *ranges.HEADERS, problems=(409, 416), media="application/octet-stream",
    )  # fmt: skip
    def get(self, request: Request, upload_id: UUID) -> HttpResponseBase:
        """Its bytes, or one range of them, once it is whole."""
        row = uploads.find(upload_id)
        if row.finished_at is None:
            raise Conflict(f"{row.received} of {row.size} bytes are here")
        return ranges.download(
            request, row.name.rpartition("/")[2], row.size, row.sha256, partial(uploads.content, row)
        )
