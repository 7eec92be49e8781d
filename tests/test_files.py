"""A reader sees the old file or the new one, whatever happens to the writer."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.errors import DamagedError, NewerFormatError, StoreError
from remuda.files import Record, read_record, to_json, write_atomically, write_json


class Parts(Record):
    name: str
    parts: tuple[int, ...]
    size: float | None = None


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_with_its_folders_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
def test_a_full_disk_leaves_the_old_content_and_nothing_else(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "open":
        monkeypatch.setattr(Path, "open", refuse)
    else:
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


@given(PLAIN)
def test_json_is_standard_and_exact(value: Any) -> None:
    """Floats come back bit for bit; what is no number becomes null."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    text = to_json(value)
    assert to_json(json.loads(text, parse_constant=refuse)) == text
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        assert json.loads(text) == value


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"a": 1', "not a parts list: Invalid JSON"),
        (b"", "not a parts list: Invalid JSON"),
        (b"\xff\xfe", "not a parts list: Invalid JSON"),
        (b"[" * 100_000, "not a parts list: Invalid JSON: recursion limit exceeded"),
        (b"[1]", "not a parts list: Input should be an object"),
        (b'{"parts": [1]}', "not a parts list: name is missing"),
        (b'{"name": "a\\nb", "parts": [1, "2"]}', "not a parts list: parts.1='2': Input should"),
        (b'{"name": 1, "parts": []}', "not a parts list: name=1: Input should be a valid string"),
        (b'{"name": "a", "parts": [], "size": NaN}', "not a parts list: size=nan"),
        (b'{"name": ["' + b"a" * 999 + b'"]}', r"not a parts list: name=\['a{58}\.\.\.: Input"),
        (b'{"format": 3}', "format 3 was written by a newer remuda; known: 2; please upgrade"),
        (b'{"format": "3"}', "not a parts list: name is missing"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_json_file_that_cannot_be_used_is_named(
    content: bytes | None, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StoreError, match=f"^{path}: {says}") as caught:
        read_record(path, Parts, "parts list", format=2)
    assert len(str(caught.value).splitlines()) == 1
    assert isinstance(caught.value, DamagedError) == ("not a" in says)
    assert isinstance(caught.value, NewerFormatError) == ("newer" in says)


def test_a_record_comes_back_exactly_and_unknown_fields_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"name": "é", "parts": [3, 1], "size": 0.1 + 0.2, "later": {"x": 1}})
    found = read_record(path, Parts, "parts list")
    assert (found.name, found.parts, found.size) == ("é", (3, 1), 0.1 + 0.2)
    write_json(path, {"name": "a", "parts": [], "size": float("nan")})
    assert read_record(path, Parts, "parts list").size is None
