"""Its migrations of the ledger: those of this release, and one of its own."""

from slackwater_tasks import migrations as present

__path__ = [*present.__path__, *__path__]
