"""Receipts in the admin: operators read them; upkeep alone writes them."""

from __future__ import annotations

from itertools import islice
from typing import Any, ClassVar

from django.contrib import admin
from django.utils.html import format_html_join
from unfold.contrib.filters.admin import AutocompleteSelectFilter

from slackwater_adminkit.big import BigTableAdmin
from slackwater_adminkit.display import column, facts
from slackwater_adminkit.services import AllTenantsMixin, ReadOnlyMixin
from slackwater_monitoring.models import ReceiptPage
from slackwater_monitoring.receipts import pages

SHOWN = 100
"""Receipts of a page that are shown; the API has them all."""


@admin.register(ReceiptPage)
class ReceiptPageAdmin(AllTenantsMixin, ReadOnlyMixin, BigTableAdmin):
    """Receipts by the pages in which they were made and sealed."""

    list_display = ("numbers", "tenant", "since", "until", "charged", "key_id")
    list_select_related = ("tenant",)
    list_filter: ClassVar[Any] = (("tenant", AutocompleteSelectFilter),)
    ordering = ("-id",)
    fields = ("tenant", "first", "last", "since", "until", "charged", "key_id", "hash", "created_at", "receipts")
    readonly_fields = ("charged", "hash", "receipts")

    numbers = column("receipts", str)
    charged = column("charged", lambda page: f"{page.charged_micros / 1_000_000:.6f}")
    hash = column("hash of the last", lambda page: bytes(page.head).hex())
    receipts = column(
        "receipts",
        lambda page: format_html_join(
            "", "{}", ((facts(one),) for one in islice(pages.shown(page, page.tenant.slug), SHOWN))
        ),
    )
