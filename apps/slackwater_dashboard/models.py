"""What people keep of the admin's pages."""

from __future__ import annotations

from django.db import models


class SavedView(models.Model):
    """A search of a list, under a name; its address leads everybody to it who may see the list."""

    id = models.BigAutoField(primary_key=True)
    owner = models.CharField(max_length=150, help_text="Name of the user whose list shows it.")
    page = models.CharField(max_length=100, help_text="The list: app and model.")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=2000)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "page", "name"], name="slackwater_saved_view_name")]

    def __str__(self) -> str:
        return self.name
