"""Files that tasks leave behind for who asked for them."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from slackwater_tasks.models.base import LedgerRow, new_id


class Artifact(LedgerRow):
    """A named file of a task. A later attempt that saves the same name replaces it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    task = models.ForeignKey(
        "slackwater_tasks.Task", on_delete=models.CASCADE, related_name="artifacts", db_constraint=False, db_index=False
    )
    name = models.CharField(max_length=200)
    content_type = models.CharField(max_length=100, default="application/octet-stream")
    size = models.PositiveIntegerField()
    sha256 = models.CharField(max_length=64)
    content = models.BinaryField()
    fence = models.IntegerField(help_text="The claim that saved it.")
    saved_at = models.DateTimeField(db_default=Now())

    class Meta(LedgerRow.Meta):
        ordering = ["task", "name"]
        constraints = [models.UniqueConstraint(fields=["task", "name"], name="slackwater_artifact_name")]

    def __str__(self) -> str:
        return self.name
