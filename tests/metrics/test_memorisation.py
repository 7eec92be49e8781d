"""Memorisation: by brute force, by chance, and with copies put among the samples."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from remuda.metrics import Items, Material, evaluate_items
from remuda.metrics.memorisation import memorisation, nearest, share_test


def normal(count: int, seed: int, *shape: int) -> Tensor:
    return torch.randn(count, *(shape or (3,)), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(2,), (1, 7, 7)])
def test_the_nearest_items_are_those_of_a_plain_search(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.metrics.memorisation._POOL_BLOCK", 13)
    items, pool = normal(20, 0, *shape), normal(50, 1, *shape)
    found = nearest(items, pool)
    plain = (items.double()[:, None] - pool.double()).flatten(2).square().sum(2).sqrt()
    assert torch.equal(found.indices, plain.argmin(1))
    assert torch.allclose(found.distances.double(), plain.amin(1))


def test_a_copy_is_at_distance_zero_though_the_matrix_product_rounds() -> None:
    pool = normal(50, 0, 1, 28, 28) + 100
    found = nearest(pool[7:9], pool)
    assert found.indices.tolist() == [7, 8]
    assert found.distances.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("training", "unseen"), [([3, 0, 2, 1], [0, 1, 0]), ([0, 4], [1, 1, 1, 0, 5]), ([2], [2, 2])]
)
def test_mean_variance_and_p_are_those_of_all_permutations(
    training: list[int], unseen: list[int]
) -> None:
    rng = np.random.default_rng(0)
    found = share_test(torch.tensor(training), torch.tensor(unseen), rng)
    counts = training + unseen
    shares = [sum(chosen) / sum(counts) for chosen in itertools.combinations(counts, len(training))]
    assert found.share == sum(training) / sum(counts)
    assert found.expected == pytest.approx(np.mean(shares))
    assert found.deviation == pytest.approx(np.std(shares))
    exact = np.mean([share >= found.share - 1e-12 for share in shares])
    assert found.p == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 9_999) + 1e-3)


def test_by_chance_every_p_is_as_likely_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.metrics.memorisation.PERMUTATIONS", 199)
    monkeypatch.setattr("remuda.metrics.memorisation.PAIRS", 1)
    # Few items for many samples, which therefore share their nearest ones: binomial p-values of
    # single samples would be far from uniform.
    found = []
    for seed in range(300):
        some = normal(230, seed)
        one = memorisation(some[:150], some[150:200], some[200:], seed)
        found.append((one.test.p, one.closest.p))
    for values in zip(*found, strict=True):
        assert np.mean(np.asarray(values) <= 0.05) < 0.09
    assert stats.kstest([of_all for of_all, _ in found], "uniform").pvalue > 0.01


def test_copies_are_found_and_shown_first() -> None:
    training, unseen = normal(400, 0, 1, 6, 6), normal(200, 1, 1, 6, 6)
    found = memorisation(training[:100], training, unseen, 0)
    assert (found.test.share, found.test.p, found.near_copies) == (1, 1e-4, 1)
    assert found.test.expected == pytest.approx(2 / 3)
    assert torch.equal(found.pairs.samples, found.pairs.training)
    assert found.pairs.distances.max() == 0


def test_one_copy_in_ten_samples_is_found() -> None:
    training, unseen, fresh = normal(1000, 0, 36), normal(500, 1, 36), normal(1000, 2, 36)
    copies = training[:100] + 0.01 * normal(100, 3, 36)
    by_chance = memorisation(fresh, training, unseen, 0)
    assert min(by_chance.test.p, by_chance.closest.p) > 0.01
    assert by_chance.near_copies < 0.03
    mixed = memorisation(torch.cat((fresh[:900], copies)), training, unseen, 0)
    assert (mixed.closest.share, mixed.closest.p) == (1, 1e-4)
    assert mixed.near_copies == pytest.approx(0.1, abs=0.03)
    assert (mixed.pairs.distances[:40] < 0.2).all()


def test_a_larger_training_set_is_not_nearer_by_itself() -> None:
    found = memorisation(normal(500, 0), normal(5000, 1), normal(200, 2), 0)
    assert found.median_training == pytest.approx(found.median_unseen, rel=0.15)
    assert found.test.share == pytest.approx(found.test.expected, abs=0.03)


def test_items_that_are_both_trained_on_and_unseen_count_as_chance_has_it() -> None:
    same = normal(300, 0)
    shares = [memorisation(same, same.repeat(3, 1), same, seed).test.share for seed in range(10)]
    assert np.mean(shares) == pytest.approx(0.75, abs=0.03)


def test_it_is_the_same_whenever_it_is_measured() -> None:
    sets = normal(100, 0), normal(100, 1), normal(80, 2)
    one, two = memorisation(*sets, 5), memorisation(*sets, 5)
    assert (one.test, one.near, one.near_copies) == (two.test, two.near, two.near_copies)


def test_the_lines_say_what_was_compared_and_what_it_means() -> None:
    training, unseen = normal(300, 0), normal(200, 1)
    material = Material(
        training[:100],
        lambda: Items(training, None, "training points"),
        lambda: Items(unseen, None, "held-out points"),
    )
    scores = evaluate_items(material, ["memorisation"])
    lines = scores.lines()
    assert lines[0] == ("scores of 100 samples against 300 training points and 200 held-out points")
    assert lines[1].startswith("memorisation    100.0% of samples are nearest to a training item;")
    assert "more than chance" in lines[3]
    assert "coordinates" in lines[4]
    assert scores.to_json()["notes"]["memorisation_unseen"] == "held-out points"
    assert scores.pairs is None  # points are no pictures
    assert "themselves" not in lines[3]
    split = replace(material, unseen=lambda: Items(unseen, None, "test points", alike=False))
    assert (
        "test points (which may differ by themselves"
        in evaluate_items(split, ["memorisation"]).lines()[3]
    )
