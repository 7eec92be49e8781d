"""Rounds between two live scores (`score.every`)."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.gan.parcels import parcel_assessment
from remuda.methods import METHODS
from tests.tiny import Population, gan_tensors, pixel_scorer, same, tiny_config, tiny_dataset


def population(method: str, **score: Any) -> Population:
    dataset = tiny_dataset()
    config = tiny_config(method={"name": method}, score={"samples": 12, **score})
    return Population(config, dataset, pixel_scorer(dataset))


@pytest.mark.parametrize("method", [name for name in METHODS if name != "class_parallel"])
def test_reports_between_have_no_score_and_parcels_the_last_one(method: str) -> None:
    some = population(method, every=2)
    first = [cell.assessment for cell in some.cells]
    assert [report.score for report in some.play()] == [None] * 4
    parcels = some.parcels()
    for cell, found in enumerate(first):
        assert found is not None
        kept = parcel_assessment(parcels[cell])
        assert kept is not None
        assert kept.score == found.score
    assert None not in [report.score for report in some.play()]
    assert None not in [report.score for report in some.play()]  # the last of three


def test_what_no_score_selects_trains_as_it_would_with_every_score() -> None:
    often, rarely = population("independent"), population("independent", every=3)
    for _ in range(3):
        often.play()
        rarely.play()
    for one, other in zip(often.cells, rarely.cells, strict=True):
        assert same(gan_tensors(one.gan), gan_tensors(other.gan))
        assert one.assessment is not None
        assert other.assessment is not None
        assert one.assessment.score == other.assessment.score
