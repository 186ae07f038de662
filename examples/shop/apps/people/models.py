"""Users of the shop's own."""

import uuid

from django.contrib.auth.models import AbstractUser
from django.db import models


class User(AbstractUser):
    """A user with a UUID."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
