"""An app that is called as ours might have been."""

from django.db import models


class Task(models.Model):
    """Something to do, with somebody to do it."""

    title = models.CharField(max_length=100)
