"""What operators do to lines, and tenants to their own."""

from __future__ import annotations

from typing import Any

from slackwater_tasks.field_kinds import Flag
from slackwater_tasks.models import Line
from slackwater_tasks.read.overview import find_lines
from slackwater_tenants.members import check_fields
from slackwater_tenants.services import pause_by_itself, pause_by_platform


def set_line_paused(line: Line, *, paused: bool) -> bool:
    """Pause or resume a line: its tasks are accepted, none is started. False if it was so before.

    By those who run the platform: its tenant cannot end such a pause, also where it had paused the line itself before.
    """
    # Unscoped: the line says whose it is.
    changed = pause_by_platform(Line.objects.unscoped().filter(pk=line.pk), paused=paused)
    line.paused, line.paused_by_itself = paused, False
    return changed


def change_own_line(tenant_id: int, category: str, tier: str, data: Any) -> None:
    """Pause a tenant's own line, or let it go on; repeating it does nothing.

    ``NotGranted``: it is paused by those who run the platform. ``InvalidInput`` names the field at fault.
    """
    paused = Flag().check(check_fields(data, ("paused",)).get("paused"), "paused")
    pause_by_itself(find_lines(tenant_id, category, tier), paused=paused)
