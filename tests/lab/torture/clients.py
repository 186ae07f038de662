"""Clients of a run: they submit work and ask for its status over HTTP, as careful clients do, and keep count."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.lab.torture.workload import Submission

CALL_TIMEOUT_S = 3.0
PATIENCE_S = 10.0
"""An operation that takes longer counts as failed; it is tried further, so that its task is judged."""
AGAIN_S = 0.25


@dataclass(slots=True)
class Tally:
    """Operations of one kind."""

    asked: int = 0
    at_once: int = 0
    failed: int = 0
    longest_s: float = 0.0
    refused: dict[int, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seconds: float, tries: int) -> None:
        """Count one operation that took that long and that many tries."""
        with self.lock:
            self.asked += 1
            self.at_once += tries == 1
            self.failed += seconds > PATIENCE_S
            if tries > 1:
                self.longest_s = max(self.longest_s, seconds)

    def leave(self, seconds: float, tries: int) -> None:
        """Count one that the end of the run found unanswered, if it had had its time."""
        if seconds > PATIENCE_S:
            self.add(seconds, tries)

    def refuse(self, status: int) -> None:
        """Count an answer that refuses."""
        with self.lock:
            self.refused[status] = self.refused.get(status, 0) + 1


class Client:
    """Calls the submitters as through a proxy: one that does not answer is passed over."""

    def __init__(self, ports: Sequence[int], key: str) -> None:
        self.key = key
        self._ports = itertools.cycle(ports)
        self._count = len(ports)

    def call(self, method: str, path: str, body: Any = None, idempotency_key: str = "") -> tuple[int, Any]:
        """The answer of the first submitter that gives one; status 0 when none does."""
        for _ in range(self._count):
            status, answer = self._call(next(self._ports), method, path, body, idempotency_key)
            if status and status != 503:
                return status, answer
        return status, answer

    def _call(self, port: int, method: str, path: str, body: Any, idempotency_key: str) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        if idempotency_key:
            headers["Idempotency-Key"] = idempotency_key
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CALL_TIMEOUT_S)
        try:
            data = json.dumps(body).encode() if body is not None else None
            connection.request(method, f"/api/v1{path}", data, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()


@dataclass(slots=True)
class Accepted:
    """A submission and the ids it was answered with."""

    submission: Submission
    task_ids: list[str]


class Crowd:
    """Hands the workload in at an even pace, and asks for the status of what was accepted."""

    def __init__(self, client_of: Any, submissions: Iterable[Submission], pace_s: float, seed: int) -> None:
        """``client_of`` makes a client for each thread; one submission is begun every ``pace_s`` seconds."""
        self.submitting, self.asking = Tally(), Tally()
        self.accepted: list[Accepted] = []
        self.refused: list[tuple[Submission, int, Any]] = []
        self._client_of = client_of
        self._submissions = iter(submissions)
        self._pace_s = pace_s
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._began = time.monotonic()
        self._number = itertools.count()
        self.submitters = [threading.Thread(target=self._submit, daemon=True) for _ in range(3)]
        self._askers = [threading.Thread(target=self._ask, daemon=True)]

    def start(self) -> None:
        """Begin."""
        self._began = time.monotonic()
        for thread in (*self.submitters, *self._askers):
            thread.start()

    def busy(self) -> bool:
        """Whether there is still something to submit."""
        return any(thread.is_alive() for thread in self.submitters)

    def stop(self) -> None:
        """Ask no more."""
        self._stopping.set()
        for thread in (*self.submitters, *self._askers):
            thread.join(30)

    def _submit(self) -> None:
        client = self._client_of()
        while not self._stopping.is_set():
            with self._lock:
                submission, number = next(self._submissions, None), next(self._number)
            if submission is None:
                return
            self._stopping.wait(max(0.0, self._began + number * self._pace_s - time.monotonic()))
            self.hand_in(client, submission)

    def hand_in(self, client: Client, submission: Submission) -> None:
        """Hand one submission in, again and again under one key until it is answered."""
        began, tries = time.monotonic(), 0
        while not self._stopping.is_set():
            tries += 1
            status, answer = client.call("POST", submission.path, submission.body, f"n{submission.number}")
            if status in (200, 201):
                self.submitting.add(time.monotonic() - began, tries)
                ids = answer["task_ids"]
                with self._lock:
                    self.accepted.append(Accepted(submission, ids))
                return
            self.submitting.refuse(status)
            if 400 <= status < 500:
                with self._lock:
                    self.refused.append((submission, status, answer))
                return
            self._stopping.wait(AGAIN_S)
        self.submitting.leave(time.monotonic() - began, tries)

    def _ask(self) -> None:
        client = self._client_of()
        while not self._stopping.wait(0.15):
            with self._lock:
                if not self.accepted:
                    continue
                task_id = self._rng.choice(self._rng.choice(self.accepted).task_ids)
            began, tries = time.monotonic(), 0
            while not self._stopping.is_set():
                tries += 1
                status, _ = client.call("GET", f"/tasks/{task_id}")
                if status == 200:
                    self.asking.add(time.monotonic() - began, tries)
                    break
                self.asking.refuse(status)
                self._stopping.wait(AGAIN_S)
            else:
                self.asking.leave(time.monotonic() - began, tries)
