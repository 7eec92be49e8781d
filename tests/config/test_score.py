"""The metrics that can rank mixtures, and the extractors that can be chosen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remuda.config import METRICS, ScoreSettings, validate
from remuda.errors import ConfigError


def test_every_metric_can_be_chosen_and_has_a_title_of_its_own() -> None:
    assert [ScoreSettings(metric=name).metric for name in METRICS] == list(METRICS)
    assert len({facts.title for facts in METRICS.values()}) == len(METRICS)


def test_of_the_inception_score_more_is_better() -> None:
    assert [name for name, facts in METRICS.items() if facts.higher_is_better] == ["is"]


def test_scores_are_due_every_few_rounds_and_after_the_last() -> None:
    settings = ScoreSettings(every=3)
    assert [round for round in range(1, 9) if settings.due(round, 8)] == [3, 6, 8]
    assert all(ScoreSettings().due(round, 8) for round in range(1, 9))


def test_an_extractor_is_a_name_or_a_file() -> None:
    assert ScoreSettings(extractor="labels").extractor_file is None
    assert ScoreSettings(extractor="my/c.safetensors").extractor_file == Path("my/c.safetensors")
    home = ScoreSettings(extractor="~/c.safetensors").extractor_file
    assert home == Path.home() / "c.safetensors"


@pytest.mark.parametrize("name", ["cifr", "c.npz", 3, None])
def test_anything_else_is_refused_with_what_is_allowed(name: object) -> None:
    says = "allowed: auto, digits, cifar, labels, random, none, or a .safetensors file"
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        validate({"score": {"extractor": name}})
    assert ("did you mean cifar?" in str(caught.value)) is (name == "cifr")
