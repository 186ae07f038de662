"""docs/reference/plans.md, from the price list that ships."""

from __future__ import annotations

from typing import Any

from slackwater_tenants.models import Plan
from slackwater_tenants.price_list import PLANS, TIER_HOUR_MICROS
from tests.lab.reference.markdown import code, page, table

INTRO = """
A new platform has these plans; `standard`, for those who run the platform for themselves, is made with the first tenant
that is given no other (`manage.py create_tenant SLUG --plan pro`). Operators edit them, and make others, in the admin
under *Plans*; a change holds from the next submission and the next round on. `GET /api/v1/limits` tells a client the
numbers of its own. Prices are in millionths of whatever unit you charge in: what an attempt costs, and what an hour of a
tier does, in thousandths of the tier's price, by category. A platform that had tenants before keeps its tiers' prices.

`make up` has a tenant on each end of the list: `demo` (`enterprise`) and `demo-free` (`free`), whose keys lie in
`var/demo.env` and `var/demo-free.env`. On `free` nothing is without a limit, urgent work, scripts and tiers of one's own are
not to be had, and nothing costs.
"""


def render() -> str:
    """The page."""
    made = {slug: Plan(slug=slug, **numbers) for slug, numbers in PLANS.items()}
    names = [field.name for field in Plan._meta.fields if field.name not in ("id", "slug", "name", "created_at")]
    rows = [(code(name), *(shown(getattr(plan, name)) for plan in made.values())) for name in names]
    hours = ((code(slug), f"{price:,}") for slug, price in TIER_HOUR_MICROS.items())
    return page(
        "Plans that ship",
        "`apps/slackwater_tenants/price_list.py`",
        INTRO,
        table(("", *map(code, made)), rows),
        "## An hour of a shared tier",
        table(("tier", "millionths an hour"), hours),
    )


def shown(value: Any) -> str:
    """A number of a plan."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "any"}[value]
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:,}" for name, number in value.items()) or "none"
    return f"{value:,}" if isinstance(value, int) else ", ".join(map(code, value))
