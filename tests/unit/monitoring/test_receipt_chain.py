"""The proof of receipts: what was changed, left out, moved or signed by another is found, and where."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from slackwater_api.http.openapi import ANSWERS
from slackwater_monitoring.receipts import chain

SECRET = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = SECRET.public_key().public_bytes_raw()
KEYS = {chain.key_id(PUBLIC): PUBLIC}


def receipts(n: int, every: int = 4, **more: Any) -> Iterator[dict[str, Any]]:
    """A chain with a seal now and then, and at its end; each with ``more``."""
    head = chain.START
    for number in range(1, n + 1):
        receipt: dict[str, Any] = {"number": number, "task_id": f"task {number}", "charged_micros": 7, **more}
        own = chain.chained(head, chain.canonical(receipt))
        seal = None
        if number % every == 0 or number == n:
            signature = base64.b64encode(SECRET.sign(chain.sealed_text("acme", number, own))).decode()
            seal = {"tenant": "acme", "key_id": chain.key_id(PUBLIC), "signature": signature}
        yield {**receipt, "previous": head.hex(), "hash": own.hex(), "seal": seal}
        head = own


def found(changed: list[dict[str, Any]]) -> list[tuple[int | None, str]]:
    return [(one.number, one.kind) for one in chain.verify(changed, KEYS).findings]


def test_what_is_whole_is_proved_in_any_form() -> None:
    whole = list(receipts(10))
    pages = [{"items": whole[:5], "next_cursor": "x"}, {"items": whole[5:], "next_cursor": None}]
    for text in ("\n".join(map(json.dumps, pages)), json.dumps(whole, indent=2), "\n".join(map(json.dumps, whole))):
        proof = chain.verify(chain.read(io.StringIO(text)), KEYS)
        assert (proof.findings, proof.count, proof.seals, proof.charged_micros) == ([], 10, 3, 70)
    assert found(whole[3:]) == [], "a part of a chain is proved as well"
    assert found(whole[:6]) == [(6, "unsealed")]
    with pytest.raises(ValueError, match="line 2 is no JSON"):
        list(chain.read(io.StringIO("{}\n{")))


def test_what_was_done_to_it_is_found_where_it_was_done() -> None:
    whole = list(receipts(10))
    forged = [*whole[:4], {**whole[4], "charged_micros": 1}, *whole[5:]]
    assert found(forged) == [(5, "changed")]
    own = chain.chained(bytes.fromhex(whole[4]["previous"]), chain.canonical(forged[4])).hex()
    assert found([*forged[:4], {**forged[4], "hash": own}, *forged[5:]]) == [(6, "unchained")], "its hash made anew"
    assert found([*whole[:4], *whole[6:]]) == [(7, "missing")]
    assert found([*whole[:4], whole[5], whole[4], *whole[6:]]) == [(6, "missing"), (5, "order"), (7, "missing")]
    other = Ed25519PrivateKey.generate().sign(chain.sealed_text("acme", 4, bytes.fromhex(whole[3]["hash"])))
    seal = {**whole[3]["seal"], "signature": base64.b64encode(other).decode()}
    assert found([*whole[:3], {**whole[3], "seal": seal}, *whole[4:]]) == [(4, "seal")]
    assert found([{}, *whole]) == [(None, "malformed")]
    assert [one.kind for one in chain.verify(whole, {}).findings] == ["key", "key", "key", "unsealed"]
    rewritten = [{**one, "seal": None} for one in whole]
    assert found(rewritten) == [(10, "unsealed")], "a chain made anew without the key has no seal"
    assert found([]) == [(None, "empty")]


def test_the_documented_example_is_proved() -> None:
    """The vector of the format: who writes a checker of his own begins with it."""
    assert chain.canonical({"b": [1, None], "a": "ü", "hash": "x"}) == b'{"a":"\\u00fc","b":[1,null]}'
    keys = chain.read_keys(io.StringIO(json.dumps(ANSWERS["list_receipt_keys"]["value"])))
    assert keys == KEYS
    items = ANSWERS["list_receipts"]["value"]["items"]
    assert chain.verify(items, keys).findings == []
    assert items[0]["hash"] in Path("docs/how-to/quotes-and-receipts.md").read_text()


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_a_million_are_proved_in_a_minute(tmp_path: Path) -> None:
    """Of processor time, read from a file; each as long as those of the platform."""
    moment = "2026-11-23T10:00:00.000000Z"
    promised: dict[str, Any] = dict.fromkeys(("submitted_at", "latest_start", "order", "share"), moment)
    promised |= dict.fromkeys(("attempt_micros", "hour_micros", "terms"), 12345)
    numbers = ("late_by_s", "held_s", "cpu_milli", "memory_mb", "disk_mb", "cpu_s", "peak_memory_mb")
    kept: dict[str, Any] = dict.fromkeys(numbers, 1234)
    kept |= {"started_at": moment, "before": {"order": 12, "category": 3, "share": 100}}
    file = tmp_path / "receipts.json"
    with file.open("w") as out:
        for one in receipts(1_000_000, every=2_000, state="succeeded", tier="basic", promised=promised, kept=kept):
            out.write(json.dumps(one) + "\n")
    began = time.process_time()
    with file.open() as lines:
        proof = chain.verify(chain.read(lines), KEYS)
    took = time.process_time() - began
    assert (proof.findings, proof.count, proof.seals) == ([], 1_000_000, 500)
    assert took < 60, f"{took:.1f} s for {file.stat().st_size >> 20} MiB"
