"""The keeper's side of checkpoints: it looks at a script's ``CHECKPOINT_DIR`` and sends what has changed."""

from __future__ import annotations

import time

from scheduler_ext.sandbox.keeper import checkpoint_folder
from scheduler_ext.sandbox.keeper.channels import Channel

SETTLE_TRIES = 5
"""Looks at the end of a run: nothing runs any more and the files stand still, so a few are enough."""


class Saver:
    """The checkpoints of one run. One message at a time is under way; the agent says when it has kept it."""

    def __init__(self, work: str, uid: int | None, *, every_s: float, most_bytes: int) -> None:
        self.folder = f"{work}/{checkpoint_folder.FOLDER}"
        self.uid = uid
        self.every_s = every_s
        self.most = most_bytes
        self.told = False
        """Whether a message is under way."""
        self._next = time.monotonic() + every_s
        self._last: tuple[checkpoint_folder.Seen, ...] = ()
        self._fault = ""

    def restore(self, content: bytes) -> None:
        """Make the folder, with the last kept checkpoint in it; ``ValueError`` or ``OSError`` if that fails."""
        checkpoint_folder.unpack(self.folder, content, self.uid)
        self._last = checkpoint_folder.look(self.folder, self.uid)

    def look(self, control: Channel, *, last: bool = False) -> None:
        """Send what was published since the last time. ``last``: the script has ended, so this is the last chance."""
        if not last and (self.told or time.monotonic() < self._next):
            return
        self._next = time.monotonic() + self.every_s
        for _ in range(SETTLE_TRIES if last else 1):
            try:
                seen = checkpoint_folder.look(self.folder, self.uid)
                if seen and seen != self._last:
                    content = checkpoint_folder.pack(self.folder, seen, self.uid, self.most)
                    control.tell({"saved": len(content)}, content)
                    self.told = True
                    self._last = seen
            except checkpoint_folder.Moving:
                continue
            except (checkpoint_folder.TooMuch, OSError, ValueError) as error:
                self._refuse(control, str(error))
            return

    def _refuse(self, control: Channel, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            control.tell({"unsaved": fault})
            self.told = True
