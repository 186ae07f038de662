"""Notifications: from the outbox to webhooks and e-mail."""
