"""What a runner grants, what its containers are created with, and how far it believes what runs inside."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from scheduler_ext.conf import runner_address
from scheduler_ext.runner import spec
from scheduler_ext.runner.options import Options, parse
from scheduler_ext.sandbox import frames
from scheduler_ext.sandbox.base import Limits

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = Options(listen="unix:/run/x", token_file="/run/t", engine="unix:///run/e", image="an-image")
LIMITS = Limits(cpu_milli=500, memory_mb=128, disk_mb=32, cap_ms=10_000, processes=64)


def order(content: bytes = b"script{}", **changes: Any) -> dict[str, Any]:
    return {
        "do": "run",
        "limits": asdict(LIMITS),
        "env": {"SLACKWATER_RUN": "a:1"},
        "parts": [6, 2],
        **changes,
    }


def limits(**changes: Any) -> dict[str, Any]:
    return {**asdict(LIMITS), **changes}


def test_a_container_has_no_privilege_and_the_limits_of_its_tier() -> None:
    made = spec.container(spec.shape(LIMITS), OPTIONS, "sha256:1", 59_001, {"a": "b"}, v2=False)
    host = made["HostConfig"]
    assert (made["Image"], made["User"], made["Labels"]) == ("sha256:1", "59001:59001", {"a": "b"})
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"]  # and so the engine's own system-call filter
    assert (host["ReadonlyRootfs"], host["Privileged"], host["NetworkMode"]) == (True, False, "none")
    assert made["NetworkDisabled"] is True
    assert host["Memory"] == host["MemorySwap"] == (128 + spec.OWN_MB + 32 + 1) << 20
    assert (host["CpuQuota"], host["CpuPeriod"]) == (50_000, 100_000)
    assert 64 < host["PidsLimit"] <= 70
    assert f"size={(32 + 2) << 20}" in host["Tmpfs"]["/task"]
    assert "uid=59001" in host["Tmpfs"]["/task"]
    for dangerous in ("Binds", "Devices", "CapAdd", "VolumesFrom", "DeviceRequests", "Links", "Runtime"):
        assert dangerous not in host


def test_the_runtime_and_the_network_are_the_operators() -> None:
    options = replace(OPTIONS, runtime="kata", network="scripts")
    granted = spec.wanted(order(limits=limits(network=True)), b"script{}", options)
    host = spec.container(granted.shape, options, "i", 59_001, {}, v2=True)["HostConfig"]
    assert (host["Runtime"], host["NetworkMode"], host["CgroupnsMode"]) == ("kata", "scripts", "private")
    with pytest.raises(spec.NotAllowed, match="no network to give"):
        spec.wanted(order(limits=limits(network=True)), b"script{}", OPTIONS)


def test_a_large_disk_is_a_volume() -> None:
    shape = spec.shape(replace(LIMITS, disk_mb=1_000))
    host = spec.container(shape, OPTIONS, "i", 59_001, {}, v2=False)["HostConfig"]
    assert host["Mounts"] == [{"Type": "volume", "Target": "/task"}]
    assert "Tmpfs" not in host
    assert shape.root == "/task/work"
    assert host["Memory"] == (128 + spec.OWN_MB) << 20


def test_scripts_of_one_tier_have_one_shape() -> None:
    assert spec.shape(LIMITS, 10) == spec.shape(replace(LIMITS, cap_ms=1), 900_000)
    assert spec.shape(LIMITS, 10) != spec.shape(LIMITS, 2_000_000)
    assert spec.shape(LIMITS) != spec.shape(replace(LIMITS, memory_mb=64))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"limits": limits(memory_mb=1 << 20)}, "memory_mb is 1048576, this runner grants at most 65536"),
        ({"limits": limits(cpu_milli=-1)}, "cpu_milli must be a number, not negative"),
        ({"limits": limits(cpu_milli=True)}, "cpu_milli must be a number"),
        ({"limits": limits(network=1)}, "network must be"),
        ({"limits": limits(privileged=True)}, "not those of this version"),
        ({"limits": None}, "not those of this version"),
        ({"env": ["PATH"]}, "env: it must be a mapping"),
        ({"env": {"A": 1}}, "env: it must be a mapping"),
        ({"env": {"A=B": "c"}}, "an equals sign"),
        ({"env": {"A": "b\0c"}}, "a zero byte"),
        ({"parts": [6]}, "a script, its inputs"),
        ({"parts": [6, 3]}, "other sizes"),
        ({"lease_s": "long"}, "lease_s: it must be a number of seconds"),
        ({"lease_s": True}, "lease_s: it must be a number of seconds"),
        ({"parts": [6, 2], "saves": {"every_s": 1, "most_bytes": 5}}, "its checkpoint must come"),
        ({"parts": [6, 2, 0], "saves": {"every_s": 0, "most_bytes": 5}}, "every_s must be"),
        ({"parts": [6, 2, 0], "saves": {"every_s": 1, "most_bytes": 1 << 40}}, "most_bytes must be"),
    ],
)
def test_what_a_worker_may_not_ask_for_is_refused_by_name(change: dict[str, Any], said: str) -> None:
    with pytest.raises(spec.NotAllowed, match=said):
        spec.wanted(order(**change), b"script{}", OPTIONS)


def test_what_it_passes_on_is_what_it_has_checked() -> None:
    granted = spec.wanted(order(more="x", image="evil"), b"script{}", OPTIONS)
    assert set(granted.message) == {"do", "limits", "env", "parts"}
    assert granted.name == "a-1"


def packed(*files: tuple[Any, ...], extra: bytes = b"") -> bytes:
    return json.dumps(files).encode() + b"\n" + b"".join(b"x" * f[1] for f in files) + extra


GRANTED = spec.wanted(order(parts=[6, 2, 0], saves={"every_s": 1, "most_bytes": 40}), b"script{}", OPTIONS)


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ({"code": "0"}, b""),
        ({"code": 5_000}, b""),
        ({"code": 0, "exceeded": "patience"}, b""),
        ({"code": 0, "cpu_ms": -1}, b""),
        ({"code": 0, "peak_mb": "many"}, b""),
        ({"code": 0, "result": True}, b"x" * (LIMITS.result_bytes + 1)),
        ({"artifacts": True}, packed(("../../etc/cron.d/x", 1, 0o600))),
        ({"artifacts": True}, packed(("/etc/x", 1, 0o600))),
        ({"artifacts": True}, packed(("a", 1, 0o600), extra=b"more")),
        ({"artifacts": True}, packed(("a", 1, 0o4755))),
        ({"artifacts": True}, b"nothing of the kind"),
        ({"saved": 1}, packed(("a", 100, 0o600))),
        ({"hello": 1}, b""),
    ],
)
def test_what_the_inside_cannot_rightly_say_is_not_passed_on(message: dict[str, Any], content: bytes) -> None:
    with pytest.raises(frames.FrameError):
        spec.answer(message, content, GRANTED)


def test_what_it_says_is_told_and_nothing_beside_it() -> None:
    end = {"code": -9, "exceeded": "memory", "cpu_ms": 5, "peak_mb": 6, "disk_mb": 7, "result": False, "x": 1}
    told = spec.answer(end, b"", GRANTED)
    assert told == {**{name: end[name] for name in end if name != "x"}, "fault": ""}
    assert spec.answer({"out": 99}, b"abc", GRANTED) == {"out": 3}
    assert spec.answer({"saved": 9}, packed(("a", 1, 0o600)), GRANTED)["saved"] > 0


def test_the_code_it_sends_is_whole() -> None:
    """Each module of the package that a sent one imports is sent too."""
    sent = spec.code()
    for text in sent.values():
        for line in (text or "").splitlines():
            if line.startswith(("from scheduler_ext.sandbox import ", "from scheduler_ext.sandbox.keeper import ")):
                package, names = line.removeprefix("from ").split(" import ")
                assert {f"{package}.{name}" for name in names.split(", ")} <= set(sent)
            elif line.startswith("from scheduler_ext."):
                assert line.split()[1] in sent
    assert len(spec.first_frame(spec.shape(LIMITS))) < frames.MAX_JSON


@pytest.mark.parametrize("text", ["", "unix:relative", "tcp:7070", "tcp::7070", "tcp:h:0", "http://h:1", "tcp:h:99999"])
def test_an_address_is_one_of_two_kinds(text: str) -> None:
    with pytest.raises(ValueError, match="is not unix:/PATH or tcp:HOST:PORT"):
        runner_address(text)


def test_addresses() -> None:
    assert runner_address("unix:/run/socket") == "/run/socket"
    assert runner_address("tcp:runner:7070") == ("runner", 7070)
    assert runner_address("tcp:[::1]:7070") == ("::1", 7070)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "here"], "--listen"),
        (["--listen", "unix:/s", "--uid-base", "0"], "--uid-base"),
        (["--listen", "unix:/s", "--runs", "0"], "--runs"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([*arguments, "--token-file", "/t", "--image", "i"])
    assert said in capsys.readouterr().err


def test_every_option_is_documented_with_its_default() -> None:
    page = (ROOT / "docs" / "how-to" / "runner.md").read_text()
    rows = {row.split("|")[1]: row for row in page.splitlines() if row.startswith("| `--")}
    known = {field.name: field.default for field in fields(Options)}
    for name, default in known.items():
        option = f"`--{name.replace('_', '-')}`"
        (row,) = [row for first, row in rows.items() if option in first]
        if isinstance(default, (int, float)):
            assert f"`{default:g}`" in row or f"`{default}`" in row, option
