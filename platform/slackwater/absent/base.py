"""The backend Django loads for `ENGINE = "slackwater.absent"`."""

from typing import Any, NoReturn

from django.db import OperationalError
from django.db.backends.postgresql import base

from slackwater.settings.environment import NOT_RUNNING


class DatabaseWrapper(base.DatabaseWrapper):
    """PostgreSQL in all it can do, so that commands that need no data work; connecting says what is missing."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> NoReturn:
        """Raise OperationalError, always."""
        raise OperationalError(NOT_RUNNING)
