"""Every address of the platform."""

from django.contrib import admin
from django.urls import include, path

from apps.monitoring.collector import metrics
from apps.monitoring.health import healthz, readyz

urlpatterns = [
    path("api/", include("apps.api.urls")),
    path("admin/", admin.site.urls),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
]
