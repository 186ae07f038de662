"""The format of receipts, and their proof: pure, so that a file of them is checked without a server.

A receipt is JSON. Its hash is the SHA-256 of the hash before it, as 32 bytes, and of its canonical text: keys sorted, no
spaces, ASCII, without ``hash``, ``previous`` and ``seal``. Now and then a seal signs tenant, number and hash by Ed25519.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import IO, Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

START: Final = bytes(32)
"""What the first receipt of a tenant follows."""
PROOF: Final = ("hash", "previous", "seal")
MAX_SHOWN: Final = 1_000

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode


def canonical(receipt: Mapping[str, Any]) -> bytes:
    """The text that is hashed."""
    return _encode({name: value for name, value in receipt.items() if name not in PROOF}).encode()


def chained(previous: bytes, text: bytes) -> bytes:
    """The hash of a receipt."""
    return sha256(previous + text).digest()


def sealed_text(tenant: str, number: int, head: bytes) -> bytes:
    """What a seal signs: the tenant's slug, the number of a receipt, and its hash."""
    return f"slackwater receipts 1\n{tenant}\n{number}\n{head.hex()}".encode()


def key_id(public: bytes) -> str:
    """What a public key is called by."""
    return sha256(public).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, and where."""

    number: int | None
    """Of the receipt; none: of the file."""
    kind: str
    detail: str


@dataclass(slots=True)
class Proof:
    """What a check of receipts found."""

    findings: list[Finding] = field(default_factory=list)
    """The first thousand."""
    kinds: dict[str, int] = field(default_factory=dict)
    """How many there are in all, by kind."""
    count: int = 0
    first: int | None = None
    last: int | None = None
    charged_micros: int = 0
    seals: int = 0

    def found(self, number: int | None, kind: str, detail: str) -> None:
        """Note what is wrong."""
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if len(self.findings) < MAX_SHOWN:
            self.findings.append(Finding(number, kind, detail))


class Checker:
    """Checks receipts one after the other, as they come."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """``keys``: public keys by their ids."""
        self.keys = {name: Ed25519PublicKey.from_public_bytes(public) for name, public in keys.items()}
        self.proof = Proof()
        self._head = ""
        self._unsealed = 0
        self._tenant: str | None = None

    def check(self, receipt: Mapping[str, Any]) -> None:
        """One more."""
        proof, number = self.proof, receipt.get("number")
        if not isinstance(number, int) or not all(isinstance(receipt.get(name), str) for name in PROOF[:2]):
            proof.found(None, "malformed", f"entry {proof.count + 1} is no receipt")
            return
        proof.count += 1
        own, previous = receipt["hash"], receipt["previous"]
        try:
            true = chained(bytes.fromhex(previous), canonical(receipt)).hex()
        except (TypeError, ValueError):
            true = ""
        if own != true:
            proof.found(number, "changed", "its content is not what its hash was made of")
        self._follow(number, previous)
        if proof.first is None:
            proof.first = number
        proof.last, self._head = number, own
        charged = receipt.get("charged_micros")
        proof.charged_micros += charged if isinstance(charged, int) else 0
        self._unsealed += 1
        if receipt.get("seal") is not None:
            self._seal(number, own, receipt["seal"])

    def _follow(self, number: int, previous: str) -> None:
        proof, last = self.proof, self.proof.last
        if last is None:
            if number == 1 and previous != START.hex():
                proof.found(number, "unchained", "the first receipt follows another")
        elif number > last + 1:
            missing = f"{last + 1}" if number == last + 2 else f"{last + 1} to {number - 1}"
            proof.found(number, "missing", f"before it {missing} should stand")
        elif number <= last:
            proof.found(number, "order", f"it stands after {last}")
        elif previous != self._head:
            proof.found(number, "unchained", f"it does not follow {last} as that stands here")

    def _seal(self, number: int, own: str, seal: Any) -> None:
        proof = self.proof
        try:
            key = self.keys.get(seal["key_id"])
            if key is None:
                proof.found(number, "key", f"it is sealed by the key {seal['key_id']}, which was not given")
                return
            if self._tenant not in (None, seal["tenant"]):
                proof.found(number, "seal", f"it is sealed for {seal['tenant']}, those before it for {self._tenant}")
            self._tenant = seal["tenant"]
            text = sealed_text(seal["tenant"], number, bytes.fromhex(own))
            key.verify(base64.b64decode(seal["signature"], validate=True), text)
        except (InvalidSignature, KeyError, TypeError, ValueError):
            proof.found(number, "seal", "its seal is not that of the key it names")
            return
        proof.seals += 1
        self._unsealed = 0

    def done(self) -> Proof:
        """All that was found, once the last has come."""
        if self._unsealed:
            at = self.proof.last
            self.proof.found(at, "unsealed", f"the last {self._unsealed} are under no seal: fetch on to the next one")
        if not self.proof.count:
            self.proof.found(None, "empty", "there is no receipt")
        return self.proof


def verify(receipts: Iterable[Mapping[str, Any]], keys: Mapping[str, bytes]) -> Proof:
    """Check receipts in the order in which they were given."""
    checker = Checker(keys)
    for receipt in receipts:
        checker.check(receipt)
    return checker.done()


def read(file: IO[str]) -> Iterator[dict[str, Any]]:
    """The receipts of a file: pages as the API answers them, arrays, or single ones, one value to a line or a single value.

    ``ValueError`` names the line that is no JSON.
    """
    for n, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            if n > 1:
                raise ValueError(f"line {n} is no JSON") from None
            try:
                value = json.loads(line + file.read())  # one value, over several lines
            except ValueError as error:
                raise ValueError(f"the file is no JSON: {error}") from None
        yield from _receipts(value)


def _receipts(value: Any) -> Iterator[dict[str, Any]]:
    found = value.get("items", [value]) if isinstance(value, dict) else value
    if not isinstance(found, list):
        found = [found]
    for one in found:
        yield one if isinstance(one, dict) else {}


def read_keys(file: IO[str]) -> dict[str, bytes]:
    """The public keys of a file, as ``GET /api/v1/receipt-keys`` answers; ``ValueError`` for what is none."""
    try:
        items = json.load(file)
        items = items["items"] if isinstance(items, dict) else items
        keys = {str(item["id"]): base64.b64decode(item["public_key"], validate=True) for item in items}
    except (KeyError, TypeError, ValueError):
        raise ValueError("the file of keys is none: save what GET /api/v1/receipt-keys answers") from None
    for name, public in keys.items():
        if len(public) != 32 or key_id(public) != name:
            raise ValueError(f"the key {name} is not the one its id names")
    return keys
