"""The API, its OpenAPI document and its reference page."""

from __future__ import annotations

from django.urls import include, path

from slackwater_api.http import reference
from slackwater_api.http.index import Index

urlpatterns = [
    path("", Index.as_view()),
    path("v1", Index.as_view()),
    path("v1/", Index.as_view(), name="api-index"),
    path("v1/", include("slackwater_api.v1.urls")),
    path("schema/", reference.OpenApi.as_view(), name="schema"),
    path("docs/", reference.Page.as_view(), name="api-docs"),
    path("docs/errors", reference.errors_page, name="api-errors"),
]
