"""Letters: a project with Celery alone."""
