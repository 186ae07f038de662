"""The fixtures, as pytest finds them wherever Slackwater is installed. Nothing else is imported until one is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from slackwater.testing.inbox import Inbox


@pytest.fixture
def slackwater_inbox(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inbox]:
    """What the test submits, which waits until it is told to run; the tenant ``tests`` is in context."""
    from scheduler_ext.task import handlers
    from slackwater.testing.inbox import Inbox
    from slackwater_tasks.ledger import hints
    from slackwater_tenants.scoping import tenant_scope

    monkeypatch.setattr(hints, "wake_dispatcher", lambda _: None)
    inbox = Inbox()
    monkeypatch.setattr(handlers, "export_late", inbox.export_late)
    with tenant_scope(inbox.tenant.pk):
        yield inbox
    inbox.close()


@pytest.fixture
def slackwater_eager(slackwater_inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> Inbox:
    """The same, but each submission is run to its end before the call that made it returns."""
    slackwater_inbox.run_at_once(monkeypatch)
    return slackwater_inbox
