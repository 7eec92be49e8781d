"""Settings of training that concern the learning rates: defaults, roles and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.config import TrainingSettings, validate
from remuda.errors import ConfigError


def training(**values: Any) -> TrainingSettings:
    return TrainingSettings.model_validate(values)


def test_discriminators_learn_as_generators_do_unless_told_otherwise() -> None:
    common = training(learning_rate=0.1, schedule="cosine")
    assert common.of_discriminator is common
    own = training(
        learning_rate=0.1, discriminator_learning_rate=0.4, discriminator_schedule="constant"
    ).of_discriminator
    assert (own.learning_rate, own.schedule) == (0.4, "constant")
    assert own.of_discriminator == own
    half = training(schedule="linear", discriminator_learning_rate=0.4).of_discriminator
    assert (half.learning_rate, half.schedule) == (0.4, "linear")


def test_all_of_it_is_off_by_default() -> None:
    found = training()
    assert (found.schedule, found.warmup, found.share_fakes) == ("constant", 0, False)
    assert found.discriminator_learning_rate is None
    assert found.discriminator_schedule is None


def test_rates_that_cells_draw_leave_none_to_set_for_discriminators() -> None:
    values = {"discriminator_learning_rate": 0.002}
    with pytest.raises(ConfigError) as error:
        validate({"training": values, "method": {"genes": {"learning_rate": [1e-4, 1e-2]}}})
    assert str(error.value) == (
        "training.discriminator_learning_rate=0.002: method.genes.learning_rate=[0.0001, 0.01] "
        "draws one rate for both networks; allowed: null in either"
    )
    validate({"training": values, "method": {"genes": {"r1": [0.1, 1]}}})


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            {"schedule": "cosin"},
            "training.schedule=cosin: not allowed; did you mean cosine? allowed: constant, linear, "
            "cosine",
        ),
        (
            {"discriminator_schedule": "step"},
            "training.discriminator_schedule=step: not allowed; allowed: constant, linear, cosine, "
            "or null",
        ),
        ({"warmup": -1}, "training.warmup=-1: not allowed; allowed: a whole number at least 0"),
        ({"warmup": 0.5}, "training.warmup=0.5: not allowed; allowed: a whole number at least 0"),
        (
            {"discriminator_learning_rate": 0},
            "training.discriminator_learning_rate=0: not allowed; allowed: a number above 0 at "
            "most 1, or null",
        ),
        ({"share_fakes": 3}, "training.share_fakes=3: not allowed; allowed: true or false"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        validate({"training": values})
    assert str(error.value) == problem
