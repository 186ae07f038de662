"""What the admins of all apps share: service calls told as messages, POST buttons, lists over millions of rows."""

from slackwater_adminkit.big import BigTableAdmin, EstimatedPaginator
from slackwater_adminkit.buttons import Button, ButtonsMixin
from slackwater_adminkit.display import JsonField, ago, badge, clock, column, json_block, seconds, short
from slackwater_adminkit.pausing import PausableMixin
from slackwater_adminkit.services import AllTenantsMixin, ReadOnlyMixin, ServiceAdmin, actor, become, tell, tell_each

__all__ = [
    "AllTenantsMixin",
    "BigTableAdmin",
    "Button",
    "ButtonsMixin",
    "EstimatedPaginator",
    "JsonField",
    "PausableMixin",
    "ReadOnlyMixin",
    "ServiceAdmin",
    "actor",
    "ago",
    "badge",
    "become",
    "clock",
    "column",
    "json_block",
    "seconds",
    "short",
    "tell",
    "tell_each",
]
