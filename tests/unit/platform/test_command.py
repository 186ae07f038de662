"""The tenants' command when it is given what it cannot use: it says so in a line, by exit code 2, and asks nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from slackwater.cli import command

TASK = "01990000-0000-7000-8000-000000000001"
Command = Callable[..., tuple[int, str, str]]


class Platform:
    """Keeps what it was sent, and takes everything."""

    def __init__(self) -> None:
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        return httpx.Response(201, json={"id": TASK, "task_ids": [TASK], "created": True})


@pytest.fixture
def platform() -> Platform:
    return Platform()


@pytest.fixture
def run(platform: Platform, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setenv("SLACKWATER_URL", "http://sw.example")
    monkeypatch.setenv("SLACKWATER_KEY", "sw_key")

    def call(*words: str) -> tuple[int, str, str]:
        code = command.main(words, transport=httpx.MockTransport(platform))
        return code, *capsys.readouterr()

    return call


@pytest.mark.parametrize("word", ["NaN", "-Infinity", "1e999", "[" * 100_000])
def test_what_is_no_json_is_text(run: Command, platform: Platform, word: str) -> None:
    assert run("submit", "demo.echo", "--", word)[0] == 0
    assert json.loads(platform.asked[0].content)["args"] == [word]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["submit", "x", "--retry", "{"], "must be JSON"),
        (["submit", "--script", "bytes"], "--script: bytes cannot be read"),
        (["submit", "--file", "bytes"], "bytes: cannot be read"),
        (["submit", "--file", "number"], "--file: must hold an object or a list"),
        (["submit", "--file", "nan"], "nan: cannot be read: NaN is no number of JSON"),
        (["submit", "--file", "task", "--priority", "3"], "--priority: say it in the file"),
        (["submit", "--file", "task", "--tag", "a"], "--tag: say it in the file"),
        (["submit", "--file", "task", "--kwarg", "a=1"], "--kwarg: say it in the file"),
        (["status", "--wait"], "--wait: name the ID that it is about"),
        (["schedules", "--pause"], "--pause: name the ID that it is about"),
        (["schedules", "--delete"], "--delete: name the ID that it is about"),
        (["workflows", "--cancel"], "--cancel: name the ID that it is about"),
        (["workflows", "--wait", "3"], "--wait: name the ID that it is about"),
        (["workflows", TASK, "--cancel", "--retry"], "not allowed with"),
        (["whoami", "--url", "http://[::1"], "url: must look like"),
        (["whoami", "--url", "http://sw.example:99999"], "url: must look like"),
        (["whoami", "--url", "http://sw.example/?a=b"], "url: must look like"),
    ],
)
def test_what_cannot_be_is_named(
    run: Command, platform: Platform, words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bytes").write_bytes(b"\xff\xfe")
    Path("number").write_text("3")
    Path("nan").write_text('{"handler": "x", "args": [NaN]}')
    Path("task").write_text('{"handler": "x"}')
    code, shown, complaint = run(*words)
    assert (code, shown) == (2, "")
    assert said in complaint
    assert platform.asked == []


def test_a_file_is_sent_as_it_is_with_the_key_that_makes_it_happen_once(
    run: Command, platform: Platform, tmp_path: Path
) -> None:
    path = tmp_path / "task.json"
    path.write_text(json.dumps({"handler": "x", "self": 1}))
    assert run("submit", "--file", str(path), "--idempotency-key", "k")[:2] == (0, f"{TASK}\n")
    path.write_text(json.dumps({"handler": "x", "idempotency_key": "mine"}))
    run("submit", "--file", str(path))
    assert [request.headers["Idempotency-Key"] for request in platform.asked] == ["k", "mine"]
    assert json.loads(platform.asked[0].content) == {"handler": "x", "self": 1}


def test_a_proxy_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLACKWATER_KEY", "sw_key")
    monkeypatch.setenv("ALL_PROXY", "gopher://proxy.example")
    assert command.main(["whoami", "--url", "http://sw.example"]) == 2
    assert "a proxy or a certificate of the environment cannot be used" in capsys.readouterr().err
