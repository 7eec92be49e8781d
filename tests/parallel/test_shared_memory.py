"""Shared memory that outlives its users is cleared, and that of others is not."""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from remuda.parallel import shared_memory as folders
from remuda.parallel.shared_memory import (
    clear_stale,
    clear_stale_segments,
    join_shared_folder,
    leave_shared_folder,
    make_shared_folder,
    make_temporary_folder,
    remove_shared_folder,
    sweep,
)


def segment(folder: Path, name: str, age: float, uid: int | None = None) -> Path:
    path = folder / f"sm_segment.{name}.{os.getuid() if uid is None else uid}.ab.0"
    path.write_bytes(b"x" * 4096)
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_segments_that_nobody_has_mapped_are_removed(tmp_path: Path) -> None:
    stale, used = segment(tmp_path, "stale", 60), segment(tmp_path, "used", 60)
    young, other = segment(tmp_path, "young", 0), segment(tmp_path, "other", 60, os.getuid() + 1)
    with used.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        clear_stale_segments(tmp_path)
        assert not stale.exists()
        assert used.exists()
        assert young.exists()
        assert other.exists()
    clear_stale_segments(tmp_path)
    assert not used.exists()


def test_whoever_leaves_a_folder_last_removes_it() -> None:
    name = f"test-{os.getpid()}"
    folder = join_shared_folder(name, 0)
    (folder / "data").touch()
    child = os.fork()
    if child == 0:
        # Another process in the same folder, which outlives the first one's stay; being a fork,
        # it must not count on the lock it inherited.
        folders._held.clear()
        join_shared_folder(name, 0)
        time.sleep(1.0)
        leave_shared_folder(folder)
        os._exit(0)
    time.sleep(0.3)
    leave_shared_folder(folder)
    assert folder.exists()
    os.waitpid(child, 0)
    assert not folder.exists()


def test_folders_of_living_masters_are_not_stale_and_those_of_dead_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    alive = make_shared_folder(2**60)  # no memory has this much room: it is on disk
    assert alive.parent == tmp_path
    dead = tmp_path / "remuda-1-dead"
    dead.mkdir()
    (dead / "alive").touch()
    clear_stale(tmp_path)
    assert alive.exists()
    assert not dead.exists()
    remove_shared_folder(alive)
    assert not alive.exists()


def test_without_a_folder_in_memory_the_disk_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS."""
    monkeypatch.setattr(folders, "MEMORY", tmp_path / "no-such-folder")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    made = make_shared_folder(0)
    assert made.parent == tmp_path
    remove_shared_folder(made)


def stale(root: Path, name: str = "remuda-1-dead") -> Path:
    """What a killed process left: a folder that nobody holds."""
    folder = root / name
    folder.mkdir()
    (folder / "alive").touch()
    (folder / "content").touch()
    return folder


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Memory and disk of this test alone."""
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    monkeypatch.setattr(folders, "MEMORY", memory)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(disk))
    return memory, disk


def test_every_new_folder_sweeps_memory_and_disk(roots: tuple[Path, Path]) -> None:
    makers: list[Callable[[], Path]] = [
        partial(make_shared_folder, 0),
        partial(join_shared_folder, "test-sweep", 0),
        make_temporary_folder,
    ]
    for make in makers:
        dead = [stale(root) for root in roots]
        made = make()
        assert not any(folder.exists() for folder in dead)
        remove_shared_folder(made)


def test_only_folders_that_are_ours_are_swept(
    roots: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user may have folders of such names, empty or with a file of that name."""
    _, disk = roots
    (disk / "remuda-empty").mkdir()
    own, other = stale(disk, "remuda-results"), stale(disk)
    (disk / "remuda-1-link").symlink_to(own)
    monkeypatch.setattr("os.getuid", lambda: other.stat().st_uid + 1)
    sweep()
    assert (disk / "remuda-empty").exists()
    assert (own / "content").exists()
    assert (other / "content").exists(), "another user's"
    monkeypatch.undo()
    clear_stale(disk)
    assert (own / "content").exists()
    assert not other.exists()


def test_a_folder_whose_maker_was_killed_before_it_held_it_is_swept(tmp_path: Path) -> None:
    (tmp_path / "remuda-1-unborn").mkdir()
    clear_stale(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_others_may_outlive_us_in_is_not_stale(roots: tuple[Path, Path]) -> None:
    """A launcher inherits the lock of the folder with its files."""
    folder = make_temporary_folder()
    heir = os.fork()
    if heir == 0:
        time.sleep(100)
    os.close(folders._held.pop(folder))
    try:
        sweep()
        assert folder.exists()
    finally:
        os.kill(heir, signal.SIGKILL)
        os.waitpid(heir, 0)
    sweep()
    assert not folder.exists()
    assert roots
