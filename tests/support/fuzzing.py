"""Bodies of submissions, random and hostile: by a seed, so that a case that fails can be had again."""

from __future__ import annotations

import json
import random
from typing import Any

from slackwater_tasks.spec import FIELDS
from tests.support.api import HANDLER
from tests.support.task_values import values_of

STRANGE_NAMES = [
    "", "__proto__", "constructor", "state", "tenant", "id", "fence", "name\x00", "ns:name", "🦀", "a" * 300, "Handler",
    "workflow", "$ref", "args[0]", "tasks", "\ud800", "'; DROP TABLE slackwater_tasks_task; --",
]  # fmt: skip
TEXTS = [
    "", "x", HANDLER, "a" * 10_000, "\x00", "a\x00b", "\ud800", "\udfff\ud800", "🦀" * 70, "../../etc/passwd",
    "/etc/passwd", "a/../b", "..", "%00", "{{7*7}}", "${jndi:ldap://x}", "<script>", "' OR 1=1 --", "\\u0000",
    "\n\r\t", "\u202e", "ﬀ",
    "2030-01-31T09:00:00Z", "2030-01-31", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "null", "NaN",
    "urgent", "delayable", "all_done", "run_first", "give_up", "basic", "premium", "http://127.0.0.1/", "https://x.org",
    "0" * 64, "f" * 64, "F" * 64, "00000000-0000-0000-0000-000000000000", "İ", "sha256:abc",
]  # fmt: skip
NUMBERS: list[Any] = [
    0, 1, -1, 2, 1000, 1001, 32_767, 32_768, 65_536, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 10**30, -(10**30), 0.0,
    -0.0, 0.5, 1e-9, 1e308, 316_224_000, 316_224_001, 0.0005, True, False, None,
]  # fmt: skip
RAW = [
    b"", b"{", b"[", b"nul", b"{}", b"[]", b'"x"', b"1", b"null", b"true", b"NaN", b"Infinity", b'{"handler":NaN}',
    b"\xff\xfe", b"\xef\xbb\xbf{}", b'{"handler":"\\ud800"}', b'{"a":1e999}', b"[" * 5_000, b'{"a":' * 3_000,
    b'{"handler":"demo.echo","handler":1}', b"1" * 6_000, b'{"handler":"demo.echo"}{}', b"\x00", b'{"priority":1e400}',
    b'{"handler":"demo.echo","args":[' + b"[" * 300 + b"]" * 300 + b"]}",
]  # fmt: skip


class Bodies:
    """A stream of cases."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def case(self) -> tuple[str, bytes, dict[str, str]]:
        """A path, a body and headers."""
        roll, rng = self.rng.random(), self.rng
        headers = {}
        if rng.random() < 0.05:
            headers["Idempotency-Key"] = rng.choice(["k", "é", "x" * 300, "a b", str(rng.random())])
        if roll < 0.06:
            return rng.choice(["/tasks", "/workflows"]), self._raw(), headers
        if roll < 0.62:
            return "/tasks", self._bytes(self.task(self._dose())), headers
        if roll < 0.78:
            return "/tasks", self._bytes(self.tasks()), headers
        return "/workflows", self._bytes(self.workflow()), headers

    def _dose(self) -> float:
        """How hostile a case is: some are harmless, most go wrong in one place, a few everywhere."""
        return self.rng.choice([0.0, 0.02, 0.05, 0.05, 0.1, 0.3, 0.9])

    def _raw(self) -> bytes:
        if self.rng.random() < 0.5:
            return self.rng.choice(RAW)
        body = bytearray(self._bytes(self.task(0.05)))
        for _ in range(self.rng.randint(1, 4)):
            body[self.rng.randrange(len(body))] = self.rng.randrange(256)
        return bytes(body)

    @staticmethod
    def _bytes(value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=True).encode()

    def task(self, dose: float) -> Any:
        """A task in which about ``dose`` of all is wrong."""
        rng = self.rng
        if rng.random() < dose / 8:
            return self.anything(3)
        made: dict[str, Any] = {"handler": HANDLER}
        for name in rng.sample(list(FIELDS), rng.randint(0, 6)):
            if name not in {"handler", "script", "script_path", "depends_on", "map", "webhook"}:
                made[name] = self.good(name)
        for name in FIELDS:
            if rng.random() < dose:
                made[name] = self.anything(3)
        if rng.random() < dose / 3:
            made[rng.choice(STRANGE_NAMES)] = self.anything(2)
        if rng.random() < dose / 3:
            del made["handler"]
        return made

    def tasks(self) -> Any:
        """A list of tasks, some of which depend on others."""
        dose = self._dose() / 4
        made = [self.task(dose) for _ in range(self.rng.choice([0, 1, 1, 2, 3, 8]))]
        return self._linked(made, dose)

    def workflow(self) -> Any:
        """A graph, or nearly one."""
        dose, rng = self._dose() / 4, self.rng
        tasks = [self.task(dose) for _ in range(rng.choice([0, 1, 2, 3, 5, 12]))]
        made: Any = {"tasks": self._linked(tasks, dose, named=True)}
        if rng.random() < 0.3:
            made["name"] = rng.choice(TEXTS) if rng.random() < dose else "w"
        if rng.random() < dose:
            made[rng.choice([*STRANGE_NAMES, "tasks"])] = self.anything(2)
        return made if rng.random() > dose / 8 else self.anything(3)

    def _linked(self, tasks: list[Any], dose: float, *, named: bool = False) -> list[Any]:
        rng = self.rng
        for n, task in enumerate(tasks):
            if not isinstance(task, dict):
                continue
            if named or rng.random() < 0.7:
                task["name"] = f"t{n}" if rng.random() > dose else f"t{rng.randint(0, 3)}"
            task.pop("idempotency_key", None)
            if n and rng.random() < 0.5:
                last = n - 1 if rng.random() > dose else len(tasks) - 1
                task["depends_on"] = [f"t{rng.randint(0, last)}" for _ in range(rng.randint(1, 3))]
        return tasks

    def good(self, name: str) -> Any:
        """A value that the field takes."""
        if name == "idempotency_key":
            return f"k{self.rng.random()}"
        if name == "checkpoints":
            return False  # true would be refused for the platform of this test, which declares none
        field = FIELDS[name]
        return self.rng.choice([*values_of(field).accepted, *([None] if field.nullable else [])])

    def anything(self, depth: int) -> Any:
        """Any JSON value."""
        rng, roll = self.rng, self.rng.random()
        if depth and roll < 0.15:
            return [self.anything(depth - 1) for _ in range(rng.randint(0, 3))]
        if depth and roll < 0.3:
            return {rng.choice([*STRANGE_NAMES, *FIELDS]): self.anything(depth - 1) for _ in range(rng.randint(0, 3))}
        return rng.choice(TEXTS) if roll < 0.65 else rng.choice(NUMBERS)
