"""A JSON file is what its model says, or it is refused in one line that names the problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.config.records import Record, read_record
from remuda.errors import DamagedError, NewerFormatError, StoreError
from remuda.files import write_json


class Parts(Record):
    name: str
    parts: tuple[int, ...]
    size: float | None = None


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
