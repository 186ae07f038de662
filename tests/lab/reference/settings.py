"""docs/reference/settings.md, from the fields of SchedulerConf and the strings below them."""

from __future__ import annotations

from dataclasses import fields

from scheduler_ext.conf import SchedulerConf
from tests.lab.reference.markdown import attribute_docs, code, page, plain, table

INTRO = """
The numbers the scheduler goes by. Give those you want to change as one JSON object in the environment variable
`SLACKWATER_SCHEDULER`, the same for every process of a cell:

```sh
SLACKWATER_SCHEDULER='{"order_policy": "deadline", "peak_permille": 700}' make up
```

In a Django project of your own they are the key `SCHEDULER` of the dictionary `SLACKWATER`
([why](../adr/0015-one-dictionary-of-settings.md)), beside the others: the key of a variable of
[environment.md](environment.md) is its name without `SLACKWATER_`:

```python
SLACKWATER = {"REDIS_URL": "redis://localhost:6379/0", "API_THREADS": 4, "SCHEDULER": {"order_policy": "deadline"}}
```

An unknown name, a value of the wrong type or one that cannot work is refused at the start, with the name of the
setting. Names end with their unit: `_s` seconds, `_ms` milliseconds, `_permille` thousandths, `_bytes` bytes.
"""
AFTER = """
The policies that `order_policy` and `share_policy` may name are in [policies.md](policies.md); everything else that the
environment decides is in [environment.md](environment.md).
"""
SHORT = {
    "node_renew_s": "A node renews its lease this often; at most half of `node_lease_s`.",
    "leader_renew_s": "The leader renews its leadership this often; at most half of `leader_lease_s`.",
    "max_result_bytes": "The largest result, as JSON, that is kept; a task that returns more fails.",
}
"""Where the code's own docstring leaves it to the name."""


def render() -> str:
    """The page."""
    return page("Settings of the scheduler", "`scheduler_ext/conf.py`", INTRO, settings_table(), AFTER)


def settings_table() -> str:
    """One row for each setting."""
    docs = attribute_docs(SchedulerConf)
    return table(
        ("setting", "default", "what it does"),
        (
            (
                code(spec.name),
                code(_shown(spec.default)),
                plain(docs.get(spec.name) or SHORT.get(spec.name, "")),
            )
            for spec in fields(SchedulerConf)
        ),
    )


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
