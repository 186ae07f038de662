"""Every address of the platform."""

from django.contrib import admin
from django.urls import include, path

from slackwater_api.http.index import Index
from slackwater_monitoring.health import healthz, readyz
from slackwater_monitoring.metrics import metrics

urlpatterns = [
    path("", Index.as_view()),
    path("api/", include("slackwater_api.urls")),
    path("console/", include("slackwater_console.urls")),
    path("admin/", admin.site.urls),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
]
handler400 = "slackwater_api.http.index.bad_request"
handler404 = "slackwater_api.http.index.not_found"
