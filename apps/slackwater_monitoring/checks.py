"""System check of ``manage.py check``: whether alerts can be raised, and told, as the settings say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured

from scheduler_ext.core.errors import ConfigurationError


@register("alerts")
def check_alerts(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Whether ``SLACKWATER_ALERTS`` changes rules that exist, to values that can be, and the receivers can be told."""
    del app_configs, kwargs
    from slackwater_monitoring.alerts.rules import rules  # most processes start without their checks
    from slackwater_monitoring.alerts.sender import faults

    try:
        rules()
        return [Error(f"{one.field} cannot be used: {one.message}", id="slackwater.E021") for one in faults()]
    except (ConfigurationError, ImproperlyConfigured) as error:
        if isinstance(error, ImproperlyConfigured) and getattr(error, "key", "") != "ALERTS":
            return []  # another setting, which its own check names
        return [Error(f"SLACKWATER_ALERTS cannot be used: {error}", id="slackwater.E020")]
