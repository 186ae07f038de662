"""What a script saves is taken whole, whatever it does to the folder meanwhile."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from scheduler_ext.sandbox.keeper import checkpoint_folder, prefork
from scheduler_ext.sandbox.keeper.channels import SocketChannel
from scheduler_ext.sandbox.keeper.checkpoint_sender import Saver

MOST = 100_000


def taken(folder: Path, most: int = MOST) -> bytes:
    return checkpoint_folder.pack(str(folder), checkpoint_folder.look(str(folder), None), None, most)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / checkpoint_folder.FOLDER
    made.mkdir()
    return made


def test_files_come_back_as_they_were(folder: Path, tmp_path: Path) -> None:
    (folder / "state.json").write_text('{"at": 7}')
    (folder / "parts" / "a").mkdir(parents=True)
    (folder / "parts" / "a" / "0").write_bytes(bytes(range(256)))
    (folder / "empty").touch()
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "tool").chmod(0o700)
    target = tmp_path / "elsewhere"
    checkpoint_folder.unpack(str(target), taken(folder), None)
    assert (target / "state.json").read_text() == '{"at": 7}'
    assert (target / "parts" / "a" / "0").read_bytes() == bytes(range(256))
    assert (target / "empty").read_bytes() == b""
    assert os.access(target / "tool", os.X_OK)


def test_what_is_not_published_is_left_out(folder: Path) -> None:
    (folder / ".next").write_text("half")
    assert checkpoint_folder.look(str(folder), None) == ()


def test_links_devices_and_pipes_are_left_out(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the node")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "one").write_text("of the node")
    (folder / "file").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path / "secrets")
    os.mkfifo(folder / "pipe")
    (folder / "good").write_text("mine")
    assert [each[0] for each in checkpoint_folder.look(str(folder), None)] == ["good"]
    assert b"of the node" not in taken(folder)


def test_the_folder_itself_may_be_no_link(folder: Path, tmp_path: Path) -> None:
    (folder / "x").write_text("of the node")
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert checkpoint_folder.look(str(link), None) == ()


def test_a_folder_swapped_for_a_link_after_the_look_is_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("of the node!")
    (folder / "d").mkdir()
    (folder / "d" / "x").write_text("of the task!")
    seen = checkpoint_folder.look(str(folder), None)
    (folder / "d" / "x").unlink()
    (folder / "d").rmdir()
    (folder / "d").symlink_to(outside)
    with pytest.raises(checkpoint_folder.Moving):
        checkpoint_folder.pack(str(folder), seen, None, MOST)


def test_what_changes_while_it_is_read_is_not_taken(folder: Path) -> None:
    (folder / "a").write_text("1")
    seen = checkpoint_folder.look(str(folder), None)
    (folder / "b").write_text("2")
    with pytest.raises(checkpoint_folder.Moving):
        checkpoint_folder.pack(str(folder), seen, None, MOST)


def test_too_much_is_refused(folder: Path) -> None:
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(checkpoint_folder.TooMuch, match="the plan allows"):
        taken(folder)
    (folder / "sparse").unlink()
    for number in range(checkpoint_folder.MAX_FILES + 1):
        (folder / f"{number}").touch()
    with pytest.raises(checkpoint_folder.TooMuch, match="files"):
        checkpoint_folder.look(str(folder), None)


def test_folders_without_end_are_refused(folder: Path) -> None:
    deep = folder
    for _ in range(checkpoint_folder.MAX_DEPTH + 2):
        deep = deep / "d"
        deep.mkdir()
    with pytest.raises(checkpoint_folder.TooMuch, match="deep"):
        checkpoint_folder.look(str(folder), None)


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "", "a//b", "."])
def test_nothing_is_put_outside(tmp_path: Path, path: str) -> None:
    import json

    content = json.dumps([[path, 1, 0o600]]).encode() + b"\nx"
    with pytest.raises(ValueError, match="no path inside"):
        checkpoint_folder.unpack(str(tmp_path / "target"), content, None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["target"]


def test_a_saver_sends_what_changed_once_it_was_kept(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(0)
    with ours, theirs:
        channel = SocketChannel(theirs)
        saver = Saver(str(tmp_path), None, every_s=0.0, most_bytes=MOST)
        saver.restore(b"")
        saver.look(channel)
        with pytest.raises(BlockingIOError):
            prefork.receive(ours)
        kept = tmp_path / checkpoint_folder.FOLDER / "at"
        kept.write_text("1")
        saver.look(channel)
        message, fds = prefork.receive(ours)
        assert message is not None
        assert message["saved"] == os.fstat(fds[0]).st_size
        kept.unlink()
        kept.write_text("22")
        saver.look(channel)
        with pytest.raises(BlockingIOError):  # one at a time: the keeper never waits for the agent
            prefork.receive(ours)
        saver.told = False
        saver.look(channel)
        assert b"22" in os.pread(prefork.receive(ours)[1][0], 1000, 0)
        kept.write_text("x" * (MOST + 1))
        saver.look(channel, last=True)
        message, _ = prefork.receive(ours)
        assert message is not None
        assert "the plan allows" in message["unsaved"]
