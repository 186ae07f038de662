"""Scripts in tenants' own folders: what is read, and what is refused whatever lies there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scheduler_ext.core.types import MAX_SCRIPT_BYTES
from scheduler_ext.sandbox.base import Refused
from scheduler_ext.worker.agent import mounted_scripts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tenant"
    made.mkdir()
    (made / "releases").mkdir()
    (made / "releases" / "one.sh").write_text("echo 1")
    (tmp_path / "secret").write_text("of somebody else")
    return made


def test_files_and_links_within_the_folder_are_read(folder: Path) -> None:
    (folder / "current").symlink_to("releases")
    for path in ("releases/one.sh", "current/one.sh"):
        assert mounted_scripts.read(str(folder), path) == b"echo 1"
    (folder / "largest.sh").write_bytes(bytes(MAX_SCRIPT_BYTES))
    assert len(mounted_scripts.read(str(folder), "largest.sh")) == MAX_SCRIPT_BYTES


def test_what_is_no_script_of_the_folder_is_refused(folder: Path) -> None:
    (folder / "link.sh").symlink_to(folder.parent / "secret")
    (folder / "up").symlink_to("..")
    (folder / "round.sh").symlink_to("round.sh")
    os.mkfifo(folder / "pipe.sh")
    with (folder / "huge.sh").open("wb") as file:
        file.truncate(1 << 40)
    for path, why in (
        ("link.sh", "leads out"), ("up/secret", "leads out"), ("../secret", "leads out"), ("/etc/passwd", "leads out"),
        ("none.sh", "there is no file"), ("releases", "there is no file"), ("pipe.sh", "there is no file"),
        ("round.sh", "there is no file"),
        ("huge.sh", "larger than the 1048576 bytes"),
    ):  # fmt: skip
        with pytest.raises(Refused, match=why):
            mounted_scripts.read(str(folder), path)
    with pytest.raises(Refused, match="leads out"):
        mounted_scripts.read("", "tests/unit/worker/test_mounted.py")


def test_a_folder_swapped_for_a_link_after_it_was_looked_at_gives_nothing_away(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "jobs").mkdir()
    (folder / "jobs" / "secret").write_text("mine")
    really = os.open

    def swapped(path: Path, flags: int) -> int:
        (folder / "jobs").rename(folder / "moved")
        (folder / "jobs").symlink_to("..")
        return really(path, flags)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(Refused, match="leads out"):
        mounted_scripts.read(str(folder), "jobs/secret")
