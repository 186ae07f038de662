"""Orders."""

from django.conf import settings
from django.db import models


class Order(models.Model):
    """An order of somebody's."""

    buyer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    total = models.DecimalField(max_digits=9, decimal_places=2)
    paid_at = models.DateTimeField(null=True)


class Step(models.Model):
    """A run of a task, told by the task itself."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="steps")
    name = models.CharField(max_length=40)
