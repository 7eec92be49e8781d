"""Statistics of real items that are kept on disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from remuda.metrics import Features, RealStatistics, Scorer, kept_statistics
from remuda.metrics import real as real_module
from tests.tiny import PixelExtractor

ITEMS = torch.rand(60, 1, 2, 2, generator=torch.Generator().manual_seed(1))
CHOSEN = torch.arange(0, 60, 2)


class Counting(PixelExtractor):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__(4)
        self.calls = 0

    def __call__(self, images: Tensor) -> Features:
        self.calls += 1
        return super().__call__(images)


@pytest.fixture(autouse=True)
def _keep_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_module, "FEWEST_KEPT", 2)


def kept(
    folder: Path,
    extractor: Counting,
    fingerprint: str = "data",
    chosen: Tensor = CHOSEN,
) -> RealStatistics:
    return kept_statistics(folder, extractor, fingerprint, chosen, lambda some: ITEMS[some])


def same(one: RealStatistics, other: RealStatistics) -> bool:
    pairs = zip(one.tensors().items(), other.tensors().items(), strict=True)
    return all(name == again and torch.equal(a, b) for (name, a), (again, b) in pairs)


def the_file(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_what_is_kept_is_what_was_found_and_is_not_looked_at_again(tmp_path: Path) -> None:
    extractor = Counting()
    first, again = kept(tmp_path, extractor), kept(tmp_path, extractor)
    assert extractor.calls == 1
    assert same(first, RealStatistics.of(extractor, ITEMS[CHOSEN]))
    assert same(first, again)


def test_a_scorer_scores_alike_with_kept_statistics_and_with_items(tmp_path: Path) -> None:
    extractor = Counting()
    kept(tmp_path, extractor)
    with_items = Scorer(extractor, ITEMS[CHOSEN], "fid").assess(ITEMS[:20])
    with_kept = Scorer(extractor, kept(tmp_path, extractor), "fid").assess(ITEMS[:20])
    assert with_items.score == with_kept.score
    assert with_items.duplicates == with_kept.duplicates


def test_other_data_items_or_weights_are_looked_at_anew(tmp_path: Path) -> None:
    extractor, other = Counting(), Counting()
    other.identity = "other weights"
    kept(tmp_path, extractor)
    kept(tmp_path, extractor, "other data")
    kept(tmp_path, extractor, chosen=CHOSEN[:-1])
    kept(tmp_path, other)
    assert (extractor.calls, other.calls) == (3, 1)


def test_few_items_are_not_worth_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_module, "FEWEST_KEPT", len(CHOSEN) + 1)
    kept(tmp_path, Counting())
    assert not list(tmp_path.iterdir())


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


@pytest.mark.parametrize("damage", [cut, flip, lambda _: b"", lambda _: b"no statistics at all"])
def test_a_damaged_file_is_replaced(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    extractor = Counting()
    first = kept(tmp_path, extractor)
    path = the_file(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert same(kept(tmp_path, extractor), first)
    assert extractor.calls == 2
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    extractor = Counting()
    first = kept(tmp_path / "file", extractor)
    assert same(first, RealStatistics.of(extractor, ITEMS[CHOSEN]))


def test_processes_that_start_together_all_find_the_same(tmp_path: Path) -> None:
    found: list[RealStatistics] = []
    together = threading.Barrier(8)

    def start() -> None:
        together.wait()
        found.append(kept(tmp_path, Counting()))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(same(found[0], one) for one in found)
    extractor = Counting()
    assert same(kept(tmp_path, extractor), found[0])
    assert extractor.calls == 0
