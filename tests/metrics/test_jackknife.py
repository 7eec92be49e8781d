"""The jackknife: what it computes, and that it removes the bias of few samples and no more."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from remuda.config import DataSettings
from remuda.data import load_dataset
from remuda.gan.parcels import strip_prefix
from remuda.methods.cellular import mutated_weights
from remuda.metrics import (
    METRICS,
    Assessment,
    Features,
    GroupedStatistics,
    SampleStatistics,
    Scorer,
    load_extractor,
    score_of,
    spread,
)
from remuda.metrics.jackknife import GROUPS, MOST_SPREAD, Resamples
from remuda.streams import choice_stream, tensor_stream
from tests.tiny import PixelExtractor

RANKING = [metric.name for metric in METRICS.values() if metric.from_statistics]
OLD = Path(__file__).parents[1] / "fixtures" / "before" / "assessments.safetensors"
Array = npt.NDArray[np.float64]


def random_features(count: int, seed: int, d: int = 5, k: int = 3) -> Features:
    stream = torch.Generator().manual_seed(seed)
    return Features(
        features=torch.randn(count, d, generator=stream) * 2 + seed % 3,
        logits=torch.randn(count, k, generator=stream) * 4 - seed % 2,
    )


def concatenated(parts: list[Features]) -> Features:
    return Features(
        features=torch.cat([part.features for part in parts]),
        logits=torch.cat([part.logits for part in parts]),
    )


def assert_same(found: SampleStatistics, wanted: SampleStatistics) -> None:
    for name, value in vars(wanted).items():
        torch.testing.assert_close(getattr(found, name), value, rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------------------- statistics


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_mixture_by_size_is_the_concatenation(sizes: list[int], seed: int) -> None:
    parts = [random_features(size, seed + i) for i, size in enumerate(sizes)]
    mixed = GroupedStatistics.mixture(
        [GroupedStatistics.of(part) for part in parts], [size / sum(sizes) for size in sizes]
    )
    assert_same(mixed.whole, SampleStatistics.of(concatenated(parts)))


def test_mixture_weights_are_how_often_a_part_is_drawn() -> None:
    a, b = random_features(30, 1), random_features(30, 2)
    parts = [GroupedStatistics.of(a), GroupedStatistics.of(b)]
    mixed = GroupedStatistics.mixture(parts, [0.75, 0.25]).whole
    drawn = SampleStatistics.of(concatenated([a, a, a, b]))
    assert mixed.count == 60
    torch.testing.assert_close(mixed.feature_second, drawn.feature_second)
    torch.testing.assert_close(mixed.class_shares, drawn.class_shares)
    torch.testing.assert_close(mixed.mean_neg_entropy, drawn.mean_neg_entropy)


@pytest.mark.parametrize("count", [30, 33])
def test_what_is_left_out_is_every_fifth_sample(count: int) -> None:
    features = random_features(count, 1)
    resamples = GroupedStatistics.mixture([GroupedStatistics.of(features)], [1.0])
    assert len(resamples.without) == GROUPS
    for group, found in enumerate(resamples.without):
        kept = [place for place in range(count) if place % GROUPS != group]
        rest = Features(features.features[kept], features.logits[kept])
        assert_same(found, SampleStatistics.of(rest))


def test_a_part_of_weight_zero_leaves_no_trace() -> None:
    good = GroupedStatistics.of(random_features(30, 1))
    broken = GroupedStatistics.of(
        Features(torch.full((30, 5), torch.nan), torch.full((30, 3), torch.nan))
    )
    mixed = GroupedStatistics.mixture([good, broken], [1.0, 0.0])
    alone = GroupedStatistics.mixture([good], [1.0])
    for found, wanted in zip(
        (mixed.whole, *mixed.without), (alone.whole, *alone.without), strict=True
    ):
        assert torch.equal(found.feature_second, wanted.feature_second)


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.6], [1.5, -0.5], [math.nan, 1.0], [0.2, 0.2]])
def test_weights_off_the_simplex_are_refused(weights: list[float]) -> None:
    part = GroupedStatistics.of(random_features(10, 0))
    with pytest.raises(ValueError, match="weights"):
        GroupedStatistics.mixture([part, part], weights)


@pytest.mark.parametrize("count", [3, 20, 23])
def test_statistics_survive_an_exchange(count: int) -> None:
    statistics = GroupedStatistics.of(random_features(count, 3))
    again = GroupedStatistics.from_tensors(statistics.tensors())
    assert again.counts == statistics.counts
    torch.testing.assert_close(again.tensors(), statistics.tensors(), rtol=0, atol=0)


@pytest.mark.parametrize("change", ["missing", "extra", "size", "type", "groups", "none", "count"])
def test_foreign_tensors_are_refused(change: str) -> None:
    tensors = GroupedStatistics.of(random_features(20, 3)).tensors()
    if change == "missing":
        del tensors["mean_probs"]
    elif change == "extra":
        tensors["more"] = torch.zeros(1)
    elif change == "size":
        tensors["logit_second"] = torch.zeros(GROUPS, 3, 2, dtype=torch.float64)
    elif change == "groups":
        tensors["feature_mean"] = tensors["feature_mean"][1:]
    elif change == "none":
        tensors = {name: value[:0] for name, value in tensors.items()}
    elif change == "count":
        tensors["count"] = -tensors["count"]
    else:
        tensors["feature_mean"] = tensors["feature_mean"].float()
    with pytest.raises(ValueError, match=r"statistics|logit_second|feature_"):
        GroupedStatistics.from_tensors(tensors)


# ---------------------------------------------------------------------------- the correction


@pytest.mark.parametrize("counts", [(20,), (23,), (40, 40), (17, 17, 17)])
def test_a_bias_that_falls_with_the_number_of_samples_is_removed(counts: tuple[int, ...]) -> None:
    parts = [GroupedStatistics.of(random_features(count, 1)) for count in counts]
    mixed = GroupedStatistics.mixture(parts, [1 / len(counts)] * len(counts))
    assert mixed.corrected(lambda found: 3 + 7 / found.count) == pytest.approx(3, abs=1e-12)


def test_the_corrected_square_of_a_mean_is_its_unbiased_estimate() -> None:
    """The square of a mean of K groups is too large by the variance of the groups' means over K."""
    members, weights = [random_features(30, seed) for seed in range(3)], [0.5, 0.3, 0.2]
    mixed = GroupedStatistics.mixture([GroupedStatistics.of(one) for one in members], weights)
    found = mixed.corrected(lambda part: float(part.feature_mean.square().sum()))
    groups = [
        sum(
            w * one.features[k::GROUPS].double().mean(0)
            for w, one in zip(weights, members, strict=True)
        )
        for k in range(GROUPS)
    ]
    means = torch.stack([torch.as_tensor(group) for group in groups])
    wanted = means.mean(0).square().sum() - (means.var(0) / GROUPS).sum()
    assert found == pytest.approx(float(wanted))


def weighted_score(metric: str, real: Features, parts: list[Features], weights: Array) -> float:
    """A metric of a mixture, from the features themselves: every sample has its own weight."""
    rows = np.concatenate([part.features.double().numpy() for part in parts])
    logits = np.concatenate([part.logits.double().numpy() for part in parts])
    each = np.concatenate(
        [
            np.full(len(part.features), w / len(part.features))
            for part, w in zip(parts, weights, strict=True)
        ]
    )
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    if metric == "is":
        mean = each @ probs
        return float(np.exp(each @ (probs * np.log(probs / mean)).sum(1)))
    if metric == "tvd":
        shown = np.eye(logits.shape[1])[logits.argmax(1)]
        seen = np.eye(logits.shape[1])[real.logits.argmax(1).numpy()].mean(0)
        return float(0.5 * np.abs(each @ shown - seen).sum())
    side = (rows, real.features) if metric == "fid" else (logits, real.logits)
    x, y = side[0], side[1].double().numpy()
    centred = x - each @ x
    cov = (centred.T * each) @ centred * len(x) / (len(x) - 1)
    real_cov = np.cov(y, rowvar=False)
    root = scipy.linalg.sqrtm(cov @ real_cov).real
    shift = ((each @ x - y.mean(0)) ** 2).sum()
    return float(shift + np.trace(cov) + np.trace(real_cov) - 2 * np.trace(root))


@pytest.mark.parametrize("metric", RANKING)
@pytest.mark.parametrize("count", [40, 42])
def test_the_jackknife_equals_a_plain_reference_on_raw_features(metric: str, count: int) -> None:
    real = random_features(60, 0)
    members = [random_features(count, seed) for seed in (1, 2, 3)]
    weights = np.array([0.6, 0.3, 0.1])
    wanted = GROUPS * weighted_score(metric, real, members, weights)
    for group in range(GROUPS):
        kept = [place for place in range(count) if place % GROUPS != group]
        rest = [Features(one.features[kept], one.logits[kept]) for one in members]
        wanted -= len(kept) / count * weighted_score(metric, real, rest, weights)
    mixed = GroupedStatistics.mixture([GroupedStatistics.of(one) for one in members], [*weights])
    statistics = SampleStatistics.of(real)
    found = mixed.corrected(lambda part: score_of(metric, statistics, part))
    assert found == pytest.approx(wanted, rel=1e-9)


def test_too_few_samples_are_scored_as_they_are() -> None:
    features = random_features(2 * GROUPS - 1, 1)
    mixed = GroupedStatistics.mixture([GroupedStatistics.of(features)], [1.0])
    assert mixed.without == ()
    real, plain = SampleStatistics.of(random_features(50, 0)), SampleStatistics.of(features)
    found = mixed.corrected(lambda part: score_of("fid", real, part))
    assert found == pytest.approx(score_of("fid", real, plain))


# ---------------------------------------------------------------------------- what it is for


@pytest.fixture(scope="module")
def perfect() -> tuple[SampleStatistics, list[GroupedStatistics]]:
    """Real digits, and members that draw 1,000 of them each: perfect generators."""
    items = load_dataset(DataSettings.model_validate({"source": "digits"})).items[:2000]
    seen = load_extractor("digits")(items)
    rng = choice_stream(0, 0, 0, "perfect-members")
    picks = [torch.from_numpy(rng.choice(len(items), 1000)) for _ in range(15)]
    members = [
        GroupedStatistics.of(Features(seen.features[pick], seen.logits[pick])) for pick in picks
    ]
    return SampleStatistics.of(seen), members


def test_perfect_members_score_alike_alone_and_in_any_mixture(
    perfect: tuple[SampleStatistics, list[GroupedStatistics]],
) -> None:
    real, members = perfect
    fids: dict[str, list[tuple[float, float]]] = {}
    for name, weights in {
        "one": [1.0],
        "uniform": [0.2] * 5,
        "uneven": [0.6, 0.1, 0.1, 0.1, 0.1],
    }.items():
        size = len(weights)
        for first in range(0, len(members), size):
            mixed = GroupedStatistics.mixture(members[first : first + size], weights)
            fid = mixed.corrected(lambda part: score_of("fid", real, part))
            fids.setdefault(name, []).append((score_of("fid", real, mixed.whole), fid))
    plain = {name: np.mean([fid for fid, _ in found]) for name, found in fids.items()}
    corrected = {name: np.mean([fid for _, fid in found]) for name, found in fids.items()}
    # The deviation of one corrected score is 0.9, and of the mean of fifteen 0.23.
    assert all(abs(fid) < 0.7 for fid in corrected.values()), corrected
    assert plain["one"] > plain["uniform"] + 2
    assert plain["uneven"] > 1.5 * plain["uniform"]
    assert min(fid for _, fid in fids["one"]) < 0  # not clipped, or the mean could not be 0


def test_the_weights_of_perfect_members_do_not_drift_towards_equal_ones() -> None:
    """A (1+1)-ES on fresh samples in every round; with uncorrected scores it drifts."""
    stream = tensor_stream(0, 0, 0, "normal-samples")

    def drawn(count: int) -> Features:
        points = torch.randn(count, 4, generator=stream)
        return Features(points, points)

    real = SampleStatistics.of(drawn(100_000))
    members = [GroupedStatistics.of(drawn(50)) for _ in range(100)]
    start = [0.6, 0.1, 0.1, 0.1, 0.1]

    def concentration(corrected: bool) -> float:
        """Σ w² after some rounds, on average; 0.2 is that of equal weights."""
        found = []
        for run in range(12):
            rng = choice_stream(run, 0, 0, "drift")
            weights = start
            for _ in range(10):
                parts = [members[place] for place in rng.choice(len(members), 5, replace=False)]
                candidate = mutated_weights(weights, 0.1, rng)
                before, after = (
                    mixed.corrected(fid) if corrected else fid(mixed.whole)
                    for mixed in (
                        GroupedStatistics.mixture(parts, one) for one in (weights, candidate)
                    )
                )
                weights = candidate if after < before else weights
            found.append(sum(weight**2 for weight in weights))
        return sum(found) / len(found)

    def fid(found: SampleStatistics) -> float:
        return score_of("fid", real, found)

    assert concentration(corrected=False) < 0.29
    assert concentration(corrected=True) > 0.35


# ---------------------------------------------------------------------------- the error


def normal(count: int, seed: int, shift: float = 0.0, d: int = 4) -> Features:
    points = torch.randn(count, d, generator=torch.Generator().manual_seed(seed))
    points[:, 0] += shift
    return Features(points, points)


def resampled(features: Features) -> Resamples:
    return GroupedStatistics.mixture([GroupedStatistics.of(features)], [1.0])


def test_the_standard_error_of_a_mean_is_the_one_in_the_books() -> None:
    """That of K group means: their deviation over the root of K."""
    features = normal(40, 1)
    found = resampled(features).standard_error(lambda part: float(part.feature_mean[0]))
    groups = torch.stack([features.features[k::GROUPS, 0].double().mean() for k in range(GROUPS)])
    assert found == pytest.approx(float(groups.std() / GROUPS**0.5))


@pytest.mark.parametrize("statistic", ["mean", "fid"])
def test_the_standard_error_is_how_far_repetitions_scatter(statistic: str) -> None:
    real = SampleStatistics.of(normal(20_000, 0))

    def score(part: SampleStatistics) -> float:
        if statistic == "mean":
            return float(part.feature_mean[0])
        return score_of("fid", real, part)

    repeated = [resampled(normal(200, seed, shift=1.0)) for seed in range(1, 201)]
    scattered = np.std([one.corrected(score) for one in repeated])
    estimated = np.sqrt(np.mean([one.standard_error(score) ** 2 for one in repeated]))
    assert estimated == pytest.approx(scattered, rel=0.2)


def test_the_standard_error_falls_with_the_root_of_the_samples() -> None:
    def error(count: int) -> float:
        found = [
            resampled(normal(count, seed)).standard_error(lambda part: float(part.feature_mean[0]))
            for seed in range(100)
        ]
        return float(np.sqrt(np.mean(np.square(found))))

    assert error(100) == pytest.approx(0.1, rel=0.15)
    assert error(1600) == pytest.approx(0.025, rel=0.15)


def test_without_groups_nobody_knows_the_error() -> None:
    assert math.isnan(resampled(normal(9, 1)).standard_error(lambda _: 1.0))
    scorer, old = Scorer(PixelExtractor(16), images(40, 0), "fid"), load_file(OLD)
    assert math.isnan(scorer.standard_error(Assessment.from_tensors(strip_prefix("a.", old))))


@pytest.mark.parametrize("metric", RANKING)
def test_the_scorers_standard_error_is_that_of_its_metric(metric: str) -> None:
    scorer = Scorer(PixelExtractor(16), images(40, 0), metric)
    found = scorer.assess(images(40, 1))
    features = scorer.extractor(images(40, 1))
    values = []
    for group in range(GROUPS):
        kept = [place for place in range(40) if place % GROUPS != group]
        rest = SampleStatistics.of(Features(features.features[kept], features.logits[kept]))
        values.append(score_of(metric, scorer.real, rest))
    wanted = math.sqrt((GROUPS - 1) * np.var(values))
    assert scorer.standard_error(found) == pytest.approx(wanted)


def test_a_broken_generator_has_no_standard_error() -> None:
    scorer, some = Scorer(PixelExtractor(16), images(40, 0), "fid"), images(40, 2)
    some[7] = math.nan
    assert math.isnan(scorer.standard_error(scorer.assess(some)))


# ---------------------------------------------------------------------------- the spread


def spread_of(*shifts: float, count: int = 500) -> float:
    return spread(
        [GroupedStatistics.of(normal(count, seed, shift)) for seed, shift in enumerate(shifts)]
    )


def test_equal_generators_are_not_apart() -> None:
    found = spread_of(*[0.0] * 10)
    plain = [score_of("fid", *map(SampleStatistics.of, (normal(500, 0), normal(500, 1))))]
    assert abs(found) < 0.3 * plain[0]


def test_the_spread_grows_with_the_distance() -> None:
    found = [spread_of(*[-shift, shift] * 3) for shift in (0.0, 0.2, 0.5, 1.0, 3.0)]
    assert found == sorted(found)


def test_the_spread_of_two_normal_generators_is_what_it_should_be() -> None:
    """N(±a, 1) against their mixture, of variance 1 + a²: a² + (√(1 + a²) − 1)²."""
    for a in (0.5, 2.0):
        wanted = a**2 + (math.sqrt(1 + a**2) - 1) ** 2
        assert spread_of(-a, a, count=20_000) == pytest.approx(wanted, rel=0.03)


def test_some_generators_stand_for_many() -> None:
    parts = [GroupedStatistics.of(normal(20, seed)) for seed in range(2 * MOST_SPREAD)]
    assert spread(parts) == spread(parts[::2])


def test_a_broken_generator_makes_the_spread_unknown_and_no_trouble() -> None:
    broken = GroupedStatistics.of(
        Features(torch.full((30, 4), torch.nan), torch.full((30, 4), torch.nan))
    )
    assert math.isnan(spread([GroupedStatistics.of(normal(30, 1)), broken]))


# ---------------------------------------------------------------------------- the scorer


def images(count: int, seed: int) -> torch.Tensor:
    return torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def test_a_cell_is_scored_as_the_mixture_of_itself() -> None:
    scorer = Scorer(PixelExtractor(16), images(40, 0), "fid")
    found = scorer.assess(images(40, 1))
    assert found.score == scorer.mixture([found], [1.0]).value
    plain = SampleStatistics.of(scorer.extractor(images(40, 1)))
    assert found.score < 0.9 * score_of("fid", scorer.real, plain)


def test_assessments_of_earlier_versions_are_scored_as_they_were() -> None:
    """The file was written by the revision before scores were corrected, of these very images."""
    scorer, old = Scorer(PixelExtractor(16), images(40, 0), "fid"), load_file(OLD)
    a, b = (Assessment.from_tensors(strip_prefix(name, old)) for name in ("a.", "b."))
    assert a.statistics.counts == (40,)
    assert scorer.mixture([a], [1.0]).value == pytest.approx(a.score)
    both = old["mixture"].item()
    assert scorer.mixture([a, b], [0.25, 0.75]).value == pytest.approx(both)
    new = scorer.assess(images(40, 1))
    # Beside one that cannot be corrected nothing is, whatever its weight.
    assert scorer.mixture([new, b], [0.25, 0.75]).value == pytest.approx(both)
    assert scorer.mixture([new, b], [1.0, 0.0]).value > 1.1 * new.score


@pytest.mark.parametrize("metric", RANKING)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_broken_generator_is_infinitely_bad(metric: str, value: float) -> None:
    scorer = Scorer(PixelExtractor(16), images(40, 0), metric)
    good, some = scorer.assess(images(40, 1)), images(40, 2)
    some[7] = value
    for broken in (scorer.assess(torch.full((40, 1, 4, 4), value)), scorer.assess(some)):
        assert math.isnan(broken.score)
        assert scorer.mixture([broken], [1.0]).loss == math.inf
        assert scorer.mixture([good, broken], [0.99, 0.01]).loss == math.inf
        without = scorer.mixture([good, broken], [1.0, 0.0])
        assert math.isfinite(without.loss)
