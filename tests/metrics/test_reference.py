"""Which real images are compared with: a random choice that is the same for every run."""

import pytest
import torch

from remuda.metrics import METRICS, Comparison, Features, SampleStatistics, neighbours, some_of


def test_some_are_distinct_in_order_and_always_the_same() -> None:
    chosen = some_of(1003, 100)
    assert len(chosen) == 100
    assert bool((chosen.diff() > 0).all())
    assert int(chosen[0]) >= 0
    assert int(chosen[-1]) < 1003
    assert torch.equal(chosen, some_of(1003, 100))
    assert set(chosen.tolist()) < set(some_of(1003, 300).tolist())


@pytest.mark.parametrize("most", [5, 6, 1000])
def test_all_are_chosen_where_there_are_no_more(most: int) -> None:
    assert some_of(5, most).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("period", [2, 3, 6])
def test_every_source_of_data_that_alternate_has_its_share(period: int) -> None:
    shares = torch.bincount(some_of(60_000, 10_000) % period) / 10_000
    torch.testing.assert_close(shares, torch.full((period,), 1 / period), rtol=0, atol=0.015)


def test_neighbours_are_looked_for_in_all_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MOST_ITEMS", 100)
    stream = torch.Generator().manual_seed(0)
    sources = torch.tensor([[0.0, 0.0], [100.0, 0.0]])  # by turns

    def items(count: int) -> Features:
        points = sources.repeat(count // 2, 1) + torch.randn(count, 2, generator=stream)
        return Features(points, points)

    real, fake = items(1000), items(100)
    statistics = SampleStatistics.of(real), SampleStatistics.of(fake)
    found = METRICS["pr"].of_images(Comparison(*statistics, fake, real))
    assert found["precision"] > 0.8
