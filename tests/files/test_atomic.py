"""A reader sees the old file or the new one, whatever happens to the writer."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.errors import StoreError
from remuda.files import to_json, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_with_its_folders_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace", "open", "writev"])
def test_a_full_disk_leaves_the_old_content_and_nothing_else(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(StoreError, match=r"file: cannot be written: No space left on device"):
        write_atomically(path, b"new" * 1000)
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


@pytest.mark.slow
def test_a_file_that_may_not_grow_leaves_the_old_content(tmp_path: Path) -> None:
    """The real thing: the kernel refuses the bytes in the middle of the write."""
    path = tmp_path / "file"
    write_atomically(path, b"old")
    code = (
        "import resource, sys; from pathlib import Path; from remuda.files import *\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "write_atomically(Path(sys.argv[1]), bytes(100_000))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"StoreError: {path}: cannot be written: File too large" in done.stderr
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_what_a_killed_writer_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / ".file.part").write_bytes(b"half")
    write_atomically(tmp_path / "file", b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("where", ["below a file", "is a folder", "/proc"])
def test_a_place_that_cannot_be_written_is_named(where: str, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    (tmp_path / "folder" / "sub").mkdir(parents=True)
    path = {
        "below a file": tmp_path / "other" / "file",
        "is a folder": tmp_path / "folder",
        "/proc": Path("/proc/no-such/file"),
    }[where]
    with pytest.raises(StoreError) as caught:
        write_atomically(path, b"x")
    assert str(caught.value).startswith(f"{path}: cannot be written: ")
    assert len(str(caught.value).splitlines()) == 1


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_keys_are_texts_and_what_is_no_number_is_null_however_deep() -> None:
    value = {3: (1.5, {"deep": [math.nan]}), "plain": -math.inf}
    assert to_json(value) == '{"3": [1.5, {"deep": [null]}], "plain": null}'
    assert to_json({3: (1.5, None)}) == '{"3": [1.5, null]}'


@given(PLAIN)
def test_json_is_standard_and_exact(value: Any) -> None:
    """Floats come back bit for bit; what is no number becomes null."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    text = to_json(value)
    assert to_json(json.loads(text, parse_constant=refuse)) == text
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        assert json.loads(text) == value
