"""The work behind the pictures of the documents."""

from __future__ import annotations

from slackwater_tenants.price_list import PLANS
from tests.lab.shots.command import WAVE_S, wave_of


def test_the_small_tenant_works_to_the_end_within_its_plan() -> None:
    waves = [wave_of(wave)[1] for wave in range(1, int(4 * 60 / WAVE_S) + 1)]
    assert sum(map(len, waves)) <= PLANS["free"]["burst"]
    assert any(waves[-4:]), "its work is in the figures of the last minutes"
