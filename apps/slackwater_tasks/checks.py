"""System checks of ``manage.py check``: can the scheduler be what the settings say, and can this machine run the
scripts of tenants nobody vouches for?"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig
from django.core import checks
from django.core.checks import CheckMessage, Info, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.connection import ConnectionDoesNotExist

from scheduler_ext.core.errors import ConfigurationError
from slackwater_conf import conf

if TYPE_CHECKING:
    from scheduler_ext.sandbox.base import Found

TAG = "sandbox"
OF_SETTINGS = ("scheduler", "alerts", "ledger", "handlers")
"""The tags of what is said of the settings alone; it asks no server."""
HINT = "docs/reference/settings.md and environment.md list what can be set."


def wrong_settings() -> list[str]:
    """What every process of the platform would stumble over after its start."""
    return [
        message.msg
        for message in checks.run_checks(tags=OF_SETTINGS)
        if message.level >= checks.WARNING and str(message.id).startswith("slackwater.") and not message.is_silenced()
    ]


@register("scheduler")
def check_scheduler(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check that the setting ``SLACKWATER`` has known keys, existing policies and valid values."""
    del app_configs, kwargs
    from scheduler_ext.policies.registry import order_policy, share_policy  # most processes start without their checks

    try:
        scheduler = conf().scheduler
        order_policy(scheduler.order_policy)
        share_policy(scheduler.share_policy)
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), hint=HINT, id="slackwater.E002")]
    except ConfigurationError as error:
        return [checks.Error(f"SLACKWATER_SCHEDULER cannot be used: {error}", hint=HINT, id="slackwater.E001")]
    return []


@register("ledger")
def check_ledger(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check that ``LEDGER_ALIAS`` names a database, and one of PostgreSQL; asks it nothing."""
    del app_configs, kwargs
    try:
        alias = conf().ledger_alias
        vendor = connections[alias].vendor
    except ConnectionDoesNotExist:
        return [
            checks.Error(f'SLACKWATER["LEDGER_ALIAS"] names no database of DATABASES: {alias!r}', id="slackwater.E003")
        ]
    except ImproperlyConfigured:  # another setting, which its own check names
        return []
    if vendor != "postgresql":
        return [
            checks.Error(
                f'DATABASES["{alias}"] must be PostgreSQL, not {vendor}: the ledger is there',
                hint='SLACKWATER["LEDGER_ALIAS"] names another database of DATABASES.',
                id="slackwater.E004",
            )
        ]
    return []


@register("handlers")
def check_handlers(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check that the modules of ``HANDLERS`` exist; imports what they are in, not them."""
    del app_configs, kwargs
    try:
        names = conf().handlers
    except ImproperlyConfigured:  # its own check names it
        return []
    return [
        checks.Warning(
            f"SLACKWATER_HANDLERS: there is no module {name!r}",
            hint="Workers and beat do not start here; no other process imports it.",
            id="slackwater.W005",
        )
        for name in names
        if not _exists(name)
    ]


def _exists(module: str) -> bool:
    kept = sys.path[:]
    sys.path[:0] = [str(Path.cwd())]  # where a worker will look
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
    finally:
        sys.path[:] = kept


@register(TAG, deploy=True)
def check_sandbox(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check which sandbox level a worker on this machine would offer. It runs them, so only with ``--deploy``."""
    del app_configs, kwargs
    from scheduler_ext.sandbox.pool import SlotPool

    try:
        scheduler = conf().scheduler
    except ImproperlyConfigured:  # its own check names it
        return []
    return messages(SlotPool(scheduler).found, scheduler.sandbox)


def messages(found: Sequence[Found], wanted: str) -> list[CheckMessage]:
    """What the levels found mean for the operator."""
    from scheduler_ext.sandbox.base import Level
    from scheduler_ext.sandbox.detect import choose

    level = choose(tuple(found), wanted)
    missing = "; ".join(f"{one.level}: {one.why}" for one in found if not one.works)
    if level is Level.PROCESS:
        return [
            checks.Warning(
                "A worker on this machine offers no sandbox: it runs scripts of trusted tenants only.",
                hint=missing or "The setting sandbox asks for plain processes.",
                id="slackwater.W010",
            )
        ]
    said: list[CheckMessage] = [
        Info(f"A worker on this machine contains scripts by {level}.", hint=missing or None, id="slackwater.I010")
    ]
    chosen = next(one for one in found if one.level is level)
    if free := [name for name in ("IOPS", "bandwidth") if name.lower() not in chosen.enforced]:
        said.append(
            Info(
                f"{' and '.join(free)} of a tier: counted when work is placed; nothing here holds scripts to it.",
                hint="Limit a whole worker instead: by its service (IOReadIOPSMax=, IOWriteIOPSMax=) or its container.",
                id="slackwater.I011",
            )
        )
    if not chosen.groups:
        said.append(
            checks.Warning(
                "No control groups can be made here: a script's memory and processes are looked at from time to "
                "time, its share of the CPU is not limited.",
                hint="Run the worker as root, or in a control group that is delegated to it (Delegate=yes).",
                id="slackwater.W011",
            )
        )
    return said
