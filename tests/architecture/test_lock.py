"""What is installed is pinned, with hashes, and the lock is what `pyproject.toml` and each package ask for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("requirements.txt", "requirements-dev.txt", "requirements-browser.txt", "requirements-site.txt")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
GROUPS: dict[str, list[str]] = PROJECT["dependency-groups"]
ASKED = {
    "requirements.txt": [
        *PROJECT["project"]["dependencies"],
        *EXTRAS["embedded"],
        *EXTRAS["server"],
        *EXTRAS["django"],
        *EXTRAS["runner"],
        *EXTRAS["examples"],
    ],
    "requirements-dev.txt": [*EXTRAS["simulation"], *GROUPS["dev"]],
    "requirements-browser.txt": GROUPS["browser"],
    "requirements-site.txt": GROUPS["site"],
}


def blocks(name: str) -> list[str]:
    """The requirements of a lock, each with the hashes that follow it."""
    text = re.sub(r"^#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
    return [block for block in re.split(r"\n(?=\S)", text.strip()) if block]


def pinned(name: str) -> dict[str, list[Requirement]]:
    found: dict[str, list[Requirement]] = {}
    for block in blocks(name):
        one = Requirement(block.split("\\")[0].strip())
        found.setdefault(canonicalize_name(one.name), []).append(one)
    return found


def version_of(one: Requirement) -> str:
    (pin,) = one.specifier
    assert pin.operator == "==", one
    return pin.version


@pytest.mark.parametrize("name", LOCKS)
def test_each_package_is_pinned_with_its_hashes(name: str) -> None:
    for block in blocks(name):
        assert re.match(r"[A-Za-z0-9._-]+==\S+", block), block[:80]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block[:80]


@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_is_current(name: str) -> None:
    """Each range of the project's metadata has a version in the lock that it allows: `make lock` has been run."""
    locked = pinned(name)
    for line in ASKED[name]:
        wanted = Requirement(line)
        if wanted.name == "slackwater":
            continue
        found = locked.get(canonicalize_name(wanted.name))
        assert found, f"{name} has no {wanted.name}: run `make lock`"
        for one in found:
            assert wanted.specifier.contains(version_of(one)), (
                f"{name} has {one}, {wanted} is asked for: run `make lock`"
            )


@pytest.mark.parametrize(("inner", "outer"), [(LOCKS[0], LOCKS[1]), (LOCKS[1], LOCKS[2])])
def test_who_develops_runs_what_is_shipped(inner: str, outer: str) -> None:
    outside = {name: {version_of(one) for one in found} for name, found in pinned(outer).items()}
    for name, found in pinned(inner).items():
        assert {version_of(one) for one in found} <= outside[name], name


def test_what_packages_need_is_in_the_lock_too() -> None:
    """Nothing is left to be resolved on the day of an installation."""
    locked = pinned("requirements-dev.txt")
    applies = [one for found in locked.values() for one in found if one.marker is None or one.marker.evaluate()]
    for package in applies:
        for line in metadata.distribution(package.name).requires or ():
            needed = Requirement(line)
            if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
                continue
            found = locked.get(canonicalize_name(needed.name), [])
            versions = [version_of(one) for one in found if one.marker is None or one.marker.evaluate()]
            allowed = [v for v in versions if needed.specifier.contains(v, prereleases=True)]
            assert allowed, f"{package.name} needs {needed}, the lock has {versions or 'none'}"


@pytest.mark.slow
def test_the_bill_of_materials_names_each_package_with_its_hashes(tmp_path: Path) -> None:
    recipe = re.search(r"^sbom:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    assert "cyclonedx_py requirements requirements.txt" in recipe[1]
    file = tmp_path / "sbom.json"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", "requirements.txt", "--pyproject",
         "pyproject.toml", "--output-reproducible", "-o", str(file)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    bill = json.loads(file.read_text())
    assert bill["metadata"]["component"]["name"] == "slackwater"
    named = {canonicalize_name(one["name"]): one for one in bill["components"]}
    assert set(named) == set(pinned("requirements.txt"))
    for one in named.values():
        assert [h for reference in one["externalReferences"] for h in reference["hashes"]], one["name"]


@pytest.mark.slow
def test_an_audit_that_must_be_done_fails_when_it_cannot(tmp_path: Path) -> None:
    """The advisory database cannot be reached through a proxy that is not there."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "AUDIT_TIMEOUT": "60"}
    nowhere = dict.fromkeys(("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"), "http://127.0.0.1:9")
    for required, code in (("", 0), ("1", 1)):
        done = subprocess.run(
            ["sh", "bin/audit"], cwd=ROOT, env=env | nowhere | {"AUDIT_REQUIRED": required}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert "audit: not done" in done.stderr
