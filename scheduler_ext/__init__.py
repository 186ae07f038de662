"""Slackwater's Celery extension: deciding, queues and running. Nothing here imports Django."""
