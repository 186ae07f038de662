"""Notifications, alerts and the audit in the admin."""

from slackwater_monitoring.admin import alerts, audit, notifications  # noqa: F401 (each registers its models)
