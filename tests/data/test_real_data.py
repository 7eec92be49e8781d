"""The packed CIFAR-10 is unpacked once, however many processes ask for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.real_data import cifar10_overrides, published_cifar10

UNPACK = """
import pathlib, sys, time
source, target = map(pathlib.Path, sys.argv[1:])
target.mkdir(parents=True)
with (source / "times").open("a") as file:
    file.write("x")
time.sleep(0.2)
(target / "data_batch_1").touch()
"""


@pytest.mark.slow
def test_it_is_unpacked_once_and_seen_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMUDA_DATA", str(tmp_path))
    packed = tmp_path / "cifar-10"
    packed.mkdir()
    (packed / "unpack.py").write_text(UNPACK)
    left = tmp_path / "cache" / "remuda" / "cifar-10" / "unfinished"  # by one that was killed
    left.mkdir(parents=True)

    def ask(_: int) -> bool:
        return (published_cifar10(tmp_path) / "cifar-10-batches-py" / "data_batch_1").is_file()

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(4)))
    assert (packed / "times").read_text() == "x"
    assert cifar10_overrides("cifar10") == [f"data.dir={left.parent}"]


def test_the_published_form_is_used_as_it_is(tmp_path: Path) -> None:
    assert published_cifar10(tmp_path) == tmp_path
    assert cifar10_overrides("digits") == []
