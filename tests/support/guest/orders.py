"""What the guest writes with Slackwater: a handler, and a submission in its own transaction."""

from django.db import transaction

import slackwater


@slackwater.handler(name="guest.mail", idempotent=True)
def mail(order: int) -> str:
    """Write to who has ordered."""
    return f"mailed {order}"


def order(tenant: slackwater.Tenant, title: str, *, fails: bool = False) -> str:
    """A row of the guest's and a task, both or neither."""
    from apps.tasks.models import Task

    with transaction.atomic():
        row = Task.objects.create(title=title)
        submission = slackwater.submit(tenant, {"handler": "guest.mail", "args": [row.pk]})
        if fails:
            raise RuntimeError("taken back")
    return str(submission.task_ids[0])
