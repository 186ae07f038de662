"""Notifications, alerts and the audit in the admin."""

from slackwater_monitoring.admin import alerts, audit, notifications

__all__ = ["alerts", "audit", "notifications"]
