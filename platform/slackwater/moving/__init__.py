"""For a project that moves over from Celery: what carries over, and its periodic tasks."""
