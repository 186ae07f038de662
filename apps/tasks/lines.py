"""What operators do to lines."""

from __future__ import annotations

from apps.tasks.models import Line


def set_line_paused(line: Line, *, paused: bool) -> bool:
    """Pause or resume a line: its tasks are accepted, none is started. False when it was so before."""
    # Unscoped: the line says whose it is.
    rows = Line.objects.unscoped().filter(pk=line.pk, paused=not paused)
    changed = rows.update(paused=paused) == 1
    line.paused = paused
    return changed
