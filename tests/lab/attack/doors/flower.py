"""Flower: what a web page in the operator's browser, or a user of the machine, can do with it."""

from __future__ import annotations

from tests.lab.attack.ground import Ground
from tests.lab.attack.probes import probe


@probe("flower", expected="401")
def its_api_without_a_password(ground: Ground) -> str:
    """The list of workers is asked for without a password."""
    return str(ground.ask("/api/workers", base=ground.flower).status)


@probe("flower", expected="401")
def its_pages_without_a_password(ground: Ground) -> str:
    """The page of workers is opened without a password."""
    return str(ground.ask("/workers", base=ground.flower).status)
