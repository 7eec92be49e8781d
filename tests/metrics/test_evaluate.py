"""Scoring over any extractor: which metrics, what is cached, what is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from remuda.errors import ConfigError
from remuda.metrics import (
    METRICS,
    AnyExtractor,
    Features,
    Need,
    Reference,
    SampleStatistics,
    Scores,
    class_accuracy,
    default_metrics,
    density_coverage,
    evaluate,
    evaluate_points,
    fid,
    fid_logits,
    load_extractor,
    precision_recall,
    tvd,
)
from remuda.metrics.reference import Progress


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

    def started(self, images: int, seconds: float, doing: str = "scoring") -> None:
        assert seconds >= 0
        assert doing
        self.announced.append(images)

    def advanced(self, images: int) -> None:
        self.done += images


def score(
    extractor: AnyExtractor,
    fake: torch.Tensor,
    real: torch.Tensor,
    *metrics: str,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Scores:
    return evaluate(fake, Reference(extractor, real, cache=cache), metrics, progress=progress)


def images(count: int, seed: int) -> torch.Tensor:
    return torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def test_each_metric_by_a_classifier_equals_its_own_function() -> None:
    extractor = load_extractor("digits")
    stream = torch.Generator().manual_seed(0)
    real, fake = (torch.rand(60, 1, 28, 28, generator=stream) * 2 - 1 for _ in range(2))
    labels = torch.arange(60) % 10
    wanted = [name for name, metric in METRICS.items() if Need.FEATURES in metric.needs]
    scores = evaluate(fake, Reference(extractor, real), wanted, labels=labels)
    before, after = (SampleStatistics.of(extractor(side)) for side in (real, fake))
    for name, function in (("fid", fid), ("fid_logits", fid_logits), ("tvd", tvd)):
        assert scores.values[name] == function(before, after)
    assert scores.values["accuracy"] == class_accuracy(extractor(fake).logits, labels)
    assert sum(scores.class_histogram) == 60
    assert {"kid", "kid_std", "precision", "recall", "density", "coverage"} <= scores.values.keys()
    lines = scores.lines()
    assert [line.split()[0] for line in lines[-5:]] == [
        *("KID", "precision", "recall", "density", "coverage")
    ]


def test_known_statistics_of_the_real_images_are_not_measured_again() -> None:
    real, fake, watched = images(30, 0), images(30, 1), Pixels()
    statistics = SampleStatistics.of(Pixels()(real))
    known = evaluate(fake, Reference(watched, real, statistics=statistics), ["fid"])
    assert watched.seen == 30
    assert known == score(Pixels(), fake, real, "fid")
    # Distances to single images need their features all the same.
    evaluate(fake, Reference(watched, real, statistics=statistics), ["fid", "pr"])
    assert watched.seen == 90


def test_only_the_chosen_images_are_looked_at() -> None:
    real, fake, chosen = images(30, 0), images(30, 1), torch.arange(0, 30, 3)
    some = evaluate(fake, Reference(Pixels(), real, chosen=chosen, about="ten"), ["fid"])
    assert some.values == score(Pixels(), fake, real[::3], "fid").values
    assert (some.real_samples, some.real) == (10, "ten")


def test_only_what_is_asked_for_is_measured_and_shown() -> None:
    scores = score(Pixels(), images(30, 0), images(30, 1), "kid", "fid", "kid")
    assert scores.values.keys() == {"kid", "kid_std", "fid"}
    assert [line.split()[0] for line in scores.lines()[1:]] == ["FID", "KID"]


def test_real_features_are_cached_by_data_and_weights(tmp_path: Path) -> None:
    real, fake, first, second = images(30, 0), images(30, 1), Pixels(), Pixels()
    told = [Told(), Told()]
    one = score(first, fake, real, "fid", cache=tmp_path, progress=told[0])
    two = score(second, fake, real, "fid", cache=tmp_path, progress=told[1])
    assert one == two
    assert first.seen - second.seen == 30
    assert [(side.announced, side.done) for side in told] == [([60], 60), ([30], 30)]
    for other, changed in ((Pixels("two"), real), (Pixels(), real + 0.01)):
        score(other, fake, changed, "fid", cache=tmp_path)
        assert other.seen == 60
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("damage", ["cut short", "other names", "other type"])
def test_a_damaged_cache_is_made_anew(damage: str, tmp_path: Path) -> None:
    real, fake = images(30, 0), images(30, 1)
    wanted = score(Pixels(), fake, real, "fid", cache=tmp_path)
    (kept,) = tmp_path.iterdir()
    good = kept.read_bytes()
    seen = Pixels()(real)
    kept.write_bytes(
        {
            "cut short": good[:-20],
            "other names": save({"features": seen.features}),
            "other type": save({"features": seen.features.double(), "logits": seen.logits}),
        }[damage]
    )
    assert score(Pixels(), fake, real, "fid", cache=tmp_path) == wanted
    assert kept.read_bytes() == good


def test_a_cache_that_cannot_be_written_costs_no_score(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    scores = score(Pixels(), images(9, 0), images(9, 1), "fid", cache=tmp_path / "file")
    assert scores.values["fid"] > 0


def test_fid_without_classes_is_that_of_the_features() -> None:
    real, fake = Pixels()(images(30, 0)), Pixels()(images(30, 1))
    wanted = fid(SampleStatistics.of(real), SampleStatistics.of(fake))
    assert score(Pixels(), images(30, 1), images(30, 0), "fid").values == {"fid": wanted}


class Coordinates:
    """Sees points as they are."""

    name, identity, scaling, classes = "coordinates", "coordinates", "[-1, 1]", 0

    def __call__(self, images: torch.Tensor) -> Features:
        return Features(images, torch.empty(len(images), 0))


@pytest.mark.parametrize(
    ("extractor", "shape"),
    [
        (load_extractor("digits"), (1, 28, 28)),
        (load_extractor("cifar"), (3, 32, 32)),
        (Pixels(), (1, 4, 4)),
        (Coordinates(), (2,)),
    ],
)
def test_neighbours_are_found_by_every_extractor_and_among_points(
    extractor: AnyExtractor, shape: tuple[int, ...]
) -> None:
    stream = torch.Generator().manual_seed(0)
    real, fake = (torch.rand(40, *shape, generator=stream) * 2 - 1 for _ in range(2))
    found = score(extractor, fake, real, "pr", "dc").values
    before, after = (extractor(side).features for side in (real, fake))
    assert found == {
        **precision_recall(before, after)._asdict(),
        **density_coverage(before, after)._asdict(),
    }
    assert found["precision"] > 0.3
    same = score(extractor, real, real, "pr", "dc").values
    assert (same["precision"], same["recall"], same["coverage"]) == (1, 1, 1)


def test_metrics_are_refused_where_what_they_need_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"^is: needs an extractor with classes .*: fid, kid, pr"):
        score(Pixels(), images(9, 0), images(9, 1), "fid", "is")
    with pytest.raises(ConfigError, match=r"^accuracy: needs an extractor with classes"):
        score(Pixels(), images(9, 0), images(9, 1), "accuracy")
    with pytest.raises(ConfigError, match=r"^modes: needs points with known modes"):
        score(Pixels(), images(9, 0), images(9, 1), "modes")
    with pytest.raises(ConfigError, match=r"^fid: needs images.*allowed here: modes$"):
        evaluate_points(torch.zeros(3, 2), torch.zeros(1, 2), 1.0, ["fid"])
    with pytest.raises(ConfigError, match=r"^fjd: unknown metric; did you mean fid\?"):
        score(Pixels(), images(9, 0), images(9, 1), "fjd")


def test_what_is_measured_unless_asked_otherwise() -> None:
    image, labelled = {Need.FEATURES}, {Need.FEATURES, Need.LOGITS, Need.LABELS}
    assert default_metrics(image) == ("fid", "kid")
    assert default_metrics(labelled - {Need.LABELS}) == ("fid", "fid_logits", "is", "tvd")
    assert default_metrics(labelled) == ("fid", "fid_logits", "is", "tvd", "accuracy")
    assert default_metrics({Need.MODES}) == ("modes",)


def test_samples_with_labels_are_checked_against_them() -> None:
    extractor = load_extractor("digits")
    fake = torch.rand(40, 1, 28, 28, generator=torch.Generator().manual_seed(0)) * 2 - 1
    guesses = extractor(fake).logits.argmax(1)
    labels = guesses.clone()
    labels[:10] = (guesses[:10] + 1) % 10
    scores = evaluate(fake, Reference(extractor, fake), labels=labels)
    assert scores.values["accuracy"] == 0.75
    assert "class accuracy  0.750" in scores.lines()
