"""The registry of probes: complete, and told apart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.attack import probes


def test_every_probe_says_what_it_does_and_expects() -> None:
    found = probes.load()
    assert found
    for one in found:
        assert one.attack.endswith("."), one.name
        assert one.expected, one.name
    assert {one.door for one in probes.load(["flower"])} == {"flower"}
    assert not any(one.long for one in probes.load(short=True))


def test_what_is_not_expected_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "_known", {})

    def fails() -> str:
        raise ValueError("so")

    made: dict[str, Any] = {"as expected": lambda: "401", "otherwise": lambda: "200", "failing": fails}
    for name, run in made.items():
        probes.add("door", name, "An attack.", "401", run, ground=False)
    with pytest.raises(ValueError, match="two probes door: failing"):
        probes.add("door", "failing", "An attack.", "401", fails, ground=False)
    scores = {name: probes.attempt(probes._known["door", name], None) for name in made}
    assert [name for name, score in scores.items() if score.held] == ["as expected"]
    assert scores["failing"].got.startswith("ValueError: so (fails:")
