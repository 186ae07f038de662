"""Notifications, alerts, receipts and the audit in the admin."""

from slackwater_monitoring.admin import alerts, audit, notifications, receipts  # noqa: F401 (each registers its models)
