"""Slackwater: a distributed, multi-tenant task platform that extends Celery."""

__version__ = "0.1.0"
