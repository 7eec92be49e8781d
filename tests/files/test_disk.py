"""The steps on disk: each does what it says, and none follows a link or waits for a pipe."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from remuda.errors import StoreError
from remuda.files import LOCK, NotRegularError, disk, is_locked, lock, real_folder, write_atomically
from scripts.draw_imports import parsed
from tests.crashes import STEPS
from tests.test_architecture import changes_on_disk


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file of the user's that nothing here may touch."""
    path = tmp_path / "bashrc"
    path.write_bytes(b"precious")
    return path


def test_every_step_is_one_that_crashes_are_tried_at() -> None:
    functions = [
        node for node in parsed("remuda.files.disk").body if isinstance(node, ast.FunctionDef)
    ]
    changing = {node.name for node in functions if [*changes_on_disk(node)]}
    assert changing | {"open_to_append", "open_to_lock"} == {*STEPS, "_open_kept"}


def test_many_pieces_are_written_whole_and_in_order(tmp_path: Path) -> None:
    pieces: list[bytes | memoryview] = [
        bytes([number % 251]) * (number % 7) for number in range(5000)
    ]
    pieces.append(memoryview(b"end"))
    write_atomically(tmp_path / "file", pieces)
    assert (tmp_path / "file").read_bytes() == b"".join(pieces)


def test_what_the_system_takes_in_parts_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda file, pieces: real(file, [pieces[0][:3]]))
    write_atomically(tmp_path / "file", [b"abcdefgh", b"", b"ij"])
    assert (tmp_path / "file").read_bytes() == b"abcdefghij"


# ---------------------------------------------------------------------------- links and pipes


@pytest.mark.parametrize("planted", ["link", "hard link", "pipe"])
def test_a_planted_part_is_not_written_through(
    planted: str, tmp_path: Path, precious: Path
) -> None:
    part = tmp_path / "run" / ".config.yaml.part"
    part.parent.mkdir()
    if planted == "pipe":
        os.mkfifo(part)
    elif planted == "link":
        part.symlink_to(precious)
    else:
        part.hardlink_to(precious)
    write_atomically(tmp_path / "run" / "config.yaml", b"new")
    assert precious.read_bytes() == b"precious"
    assert (tmp_path / "run" / "config.yaml").read_bytes() == b"new"
    assert not (tmp_path / "run" / "config.yaml").is_symlink()
    assert [path.name for path in part.parent.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize("planted", ["link", "dangling link", "pipe", "device"])
@pytest.mark.parametrize("step", [disk.open_to_append, disk.open_to_lock])
def test_what_is_kept_open_must_be_a_file(
    step: object, planted: str, tmp_path: Path, precious: Path
) -> None:
    assert callable(step)
    path = tmp_path / "events.jsonl"
    if planted == "pipe":
        os.mkfifo(path)
    else:
        targets = {"link": precious, "dangling link": tmp_path / "new", "device": Path("/dev/zero")}
        path.symlink_to(targets[planted])
    with pytest.raises(NotRegularError, match="not a regular file"):
        step(path)
    assert not (tmp_path / "new").exists()


def test_a_lock_is_not_made_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
    wanted = pytest.raises(StoreError, match=r"\.lock: cannot be written: is not a regular file")
    with wanted, lock(tmp_path, "held"):
        pass
    assert not (tmp_path / "elsewhere").exists()
    assert not is_locked(tmp_path)


def test_a_lock_knows_whether_its_folder_is_still_there(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with lock(folder, "held") as held:
        assert held.is_in_place()
        folder.rename(tmp_path / "moved")
        assert not held.is_in_place()
        folder.mkdir()
        with lock(folder, "held"):  # of another, in its place
            assert not held.is_in_place()


def test_a_tree_is_removed_with_its_links_and_not_what_they_lead_to(
    tmp_path: Path, precious: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    tree = tmp_path / "tree"
    (tree / "deep" / "deeper").mkdir(parents=True)
    (tree / "deep" / "folder").symlink_to(tmp_path / "other")
    (tree / "deep" / "file").symlink_to(precious)
    (tree / "deep" / "nothing").symlink_to("nowhere")
    disk.remove_tree(tree)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bashrc", "other"]
    (tmp_path / "link").symlink_to(tmp_path / "other")
    disk.remove_tree(tmp_path / "link")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["file"]
    assert not (tmp_path / "link").is_symlink()


def test_a_folder_in_another_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    wanted = tmp_path / "link" / "checkpoints" / "round-000001"
    assert real_folder(tmp_path / "link", "checkpoints", "round-000001") == wanted
    (tmp_path / "run" / "checkpoints" / "round-000001").symlink_to("/")
    with pytest.raises(StoreError, match="round-000001: is a link; allowed: a folder of its own"):
        real_folder(tmp_path / "link", "checkpoints", "round-000001")
    (tmp_path / "run" / "samples").touch()
    with pytest.raises(StoreError, match="samples: is not a folder; allowed: a folder"):
        real_folder(tmp_path / "run", "samples")


# ---------------------------------------------------------------------------- power cuts


def test_new_folders_are_synced_into_those_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(disk, "sync_path", synced.append)
    disk.make_folders(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]
    disk.make_folders(tmp_path / "a" / "b")
    assert len(synced) == 2
