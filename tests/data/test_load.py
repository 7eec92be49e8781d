from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from remuda.data.reading import reading
from remuda.errors import ConfigError, DataError
from tests.data.samples import load, write_mnist


@pytest.mark.parametrize(
    ("source", "nearest"),
    [
        ("minst", "mnist"),
        ("CIFAR-10", "cifar10"),
        ("digit", "digits"),
        ("no/such.csv", None),
        ("d.npz", None),
    ],
)
def test_an_unknown_source_is_told_the_names_and_a_near_one(
    source: str, nearest: str | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(source)
    said = str(caught.value)
    assert said.startswith(f"data.source={source!r} is neither a data set nor an existing path; ")
    assert said.endswith(" allowed: digits, mnist, cifar10, cifar100, r15, mog25, ring8, or a path")
    assert ("did you mean" in said) == (nearest is not None)
    assert nearest is None or f"; did you mean {nearest}? allowed: " in said


def test_an_empty_source_is_not_the_current_folder() -> None:
    with pytest.raises(ConfigError, match=r"data\.source=''"):
        load("")


@pytest.mark.parametrize("by_environment", [True, False])
def test_a_relative_path_is_found_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_environment: bool
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "points.csv").write_text("1,2\n3,4\n")
    if by_environment:
        monkeypatch.setenv("REMUDA_DATA", str(tmp_path))
    assert len(load("sub/points.csv", dir=None if by_environment else str(tmp_path))) == 2


def test_the_test_split_is_only_for_named_sets(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    with pytest.raises(DataError, match="only the split train"):
        load("mog25", split="test")
    with pytest.raises(
        DataError, match=r"data\.split=test is only for digits, mnist, cifar10, cifar100"
    ):
        load(tmp_path / "train-images-idx3-ubyte.gz", split="test")


def test_a_data_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data.dir=.*nowhere: no such folder"):
        load("mnist", dir=str(tmp_path / "nowhere"))


NOBODY = 65534


@contextmanager
def as_a_user() -> Iterator[None]:
    """Root may read everything, so where it runs the tests somebody else does this part."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("name", ["a.csv", "a.npy", "a-idx3-ubyte", "folder"])
def test_what_may_not_be_read_is_named(name: str) -> None:
    # Not below pytest's own folder, which is closed to others as a whole.
    with tempfile.TemporaryDirectory() as open_to_all:
        folder = Path(open_to_all)
        folder.chmod(0o755)
        path = folder / name
        path.mkdir() if name == "folder" else path.write_text("1,2\n")
        with suppress(DataError):
            load(path)  # whatever is imported at first use, while it may be
        path.chmod(0)
        try:
            with as_a_user(), pytest.raises(DataError, match=f"{name}.*permission denied"):
                load(path)
        finally:
            path.chmod(0o700)


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (PermissionError(13, "x"), "a.csv: permission denied"),
        (IsADirectoryError(21, "x"), "a.csv: is a folder"),
        (FileNotFoundError(2, "x"), "a.csv: no such file"),
        (EOFError(), "a.csv: damaged or in another format: EOFError"),
        (MemoryError(), "a.csv: takes more memory than there is"),
    ],
)
def test_every_failure_of_reading_names_the_file(raised: Exception, says: str) -> None:
    with pytest.raises(DataError, match=says), reading(Path("a.csv")):
        raise raised
