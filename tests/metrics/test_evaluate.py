"""Scoring over any extractor: which metrics, what is cached, what is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from remuda.errors import ConfigError
from remuda.metrics import (
    EVALUATIONS,
    Features,
    SampleStatistics,
    check_metrics,
    default_metrics,
    evaluate,
    fid,
    load_extractor,
    score_samples,
)


class Pixels:
    """Counts what it is shown; its features are pixel means."""

    name, scaling, classes = "pixels", "[-1, 1]", 0

    def __init__(self, identity: str = "one") -> None:
        self.identity = identity
        self.seen = 0

    def __call__(self, images: torch.Tensor) -> Features:
        self.seen += len(images)
        return Features(images.mean(2).flatten(1), torch.empty(len(images), 0))


class Told:
    def __init__(self) -> None:
        self.announced: list[int] = []
        self.done = 0

    def started(self, images: int, seconds: float) -> None:
        assert seconds >= 0
        self.announced.append(images)

    def advanced(self, images: int) -> None:
        self.done += images


def images(count: int, seed: int) -> torch.Tensor:
    return torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def test_each_metric_by_a_classifier_equals_its_own_function() -> None:
    extractor = load_extractor("digits")
    stream = torch.Generator().manual_seed(0)
    real, fake = (torch.rand(60, 1, 28, 28, generator=stream) * 2 - 1 for _ in range(2))
    scores = evaluate(extractor, fake, real, tuple(EVALUATIONS))
    statistics = SampleStatistics.of(extractor(real))
    wanted = score_samples(extractor, fake, statistics)
    assert {name: scores.values[name] for name in wanted.values} == wanted.values
    assert scores.class_histogram == wanted.class_histogram
    assert {"kid", "kid_std", "precision", "recall", "density", "coverage"} <= scores.values.keys()
    lines = scores.lines()
    assert [line.split()[0] for line in lines[-5:]] == [
        *("KID", "precision", "recall", "density", "coverage")
    ]


def test_only_what_is_asked_for_is_measured_and_shown() -> None:
    scores = evaluate(Pixels(), images(30, 0), images(30, 1), ["kid", "fid", "kid"])
    assert scores.values.keys() == {"kid", "kid_std", "fid"}
    assert [line.split()[0] for line in scores.lines()[1:]] == ["FID", "KID"]


def test_real_features_are_cached_by_data_and_weights(tmp_path: Path) -> None:
    real, fake, first, second = images(30, 0), images(30, 1), Pixels(), Pixels()
    told = [Told(), Told()]
    one = evaluate(first, fake, real, ["fid"], cache=tmp_path, progress=told[0])
    two = evaluate(second, fake, real, ["fid"], cache=tmp_path, progress=told[1])
    assert one == two
    assert first.seen - second.seen == 30
    assert [(side.announced, side.done) for side in told] == [([60], 60), ([30], 30)]
    for other, changed in ((Pixels("two"), real), (Pixels(), real + 0.01)):
        evaluate(other, fake, changed, ["fid"], cache=tmp_path)
        assert other.seen == first.seen
    assert len(list(tmp_path.iterdir())) == 3


def test_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    real, fake = images(30, 0), images(30, 1)
    wanted = evaluate(Pixels(), fake, real, ["fid"], cache=tmp_path)
    (kept,) = tmp_path.iterdir()
    good = kept.read_bytes()
    kept.write_bytes(good[:-20])
    assert evaluate(Pixels(), fake, real, ["fid"], cache=tmp_path) == wanted
    assert kept.read_bytes() == good


def test_a_cache_that_cannot_be_written_costs_no_score(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    scores = evaluate(Pixels(), images(9, 0), images(9, 1), ["fid"], cache=tmp_path / "file")
    assert scores.values["fid"] > 0


def test_fid_without_classes_is_that_of_the_features() -> None:
    real, fake = Pixels()(images(30, 0)), Pixels()(images(30, 1))
    wanted = fid(SampleStatistics.of(real), SampleStatistics.of(fake))
    assert evaluate(Pixels(), images(30, 1), images(30, 0), ["fid"]).values == {"fid": wanted}


def test_metrics_that_need_classes_are_refused_without_them() -> None:
    with pytest.raises(ConfigError, match=r"is: .* no classifying layer .*allowed: fid, kid, pr"):
        check_metrics(["fid", "is"], Pixels())
    with pytest.raises(ConfigError, match=r"fjd: unknown metric; did you mean fid\?"):
        check_metrics(["fjd"])
    assert default_metrics(Pixels()) == ("fid", "kid")
    assert "is" in default_metrics(load_extractor("digits"))


def test_samples_that_were_asked_for_by_label_are_checked_against_it() -> None:
    extractor = load_extractor("digits")
    fake = torch.rand(40, 1, 28, 28, generator=torch.Generator().manual_seed(0)) * 2 - 1
    guesses = extractor(fake).logits.argmax(1)
    asked = guesses.clone()
    asked[:10] = (guesses[:10] + 1) % 10
    scores = evaluate(extractor, fake, fake, ["fid"], labels=asked)
    assert scores.values["accuracy"] == 0.75
    assert "class accuracy  0.750" in scores.lines()
