"""What a run is scored against, and what may not be asked of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from remuda.config import Config, load_config, validate
from remuda.data import Dataset, dataset_from_array
from remuda.errors import ConfigError
from remuda.metrics import Scorer
from remuda.runs.environment import changed_settings
from remuda.runs.prepare import Run
from tests.tiny import tiny_config, tiny_dataset

SMALL: dict[str, Any] = {
    "network": {"family": "mlp", "latent": 4, "hidden": [8]},
    "training": {"batch_size": 10},
    "grid": "1x2",
    "score": {"extractor": "digits"},
}


def config(**values: Any) -> Config:
    return validate({**SMALL, **values})


@pytest.fixture(scope="module")
def sorted_digits() -> Dataset:
    """Real digits in the order of their classes, as image folders hold them."""
    from remuda.config import DataSettings
    from remuda.data import load_dataset

    digits = load_dataset(DataSettings.model_validate({"source": "digits", "limit": 1000}))
    assert digits.labels is not None
    order = torch.argsort(digits.labels, stable=True)
    images = ((digits.items[order] + 1) * 127.5).round().byte().numpy()
    return dataset_from_array(images, digits.labels[order].numpy())


def test_the_real_side_of_the_scores_has_every_class_of_sorted_data(
    sorted_digits: Dataset,
) -> None:
    scorer = Run.prepare(config(), sorted_digits, real_samples=100).scorer
    assert scorer is not None
    assert scorer.real.count == 100
    assert scorer.real.class_shares.min() > 0.03


def test_cells_that_see_one_label_are_scored_against_that_label(sorted_digits: Dataset) -> None:
    run = Run.prepare(config(data={"view": "label", "label": 3}), sorted_digits)
    assert run.scorer is not None
    assert int(run.scorer.real.class_shares.argmax()) == 3
    assert run.scorer.real.class_shares.max() > 0.95


def test_a_critic_that_would_never_let_its_generator_train_is_refused() -> None:
    data = dataset_from_array(np.zeros((40, 28, 28), np.uint8))
    training = {"batch_size": 10, "n_critic": 5}
    with pytest.raises(ConfigError, match=r"training.n_critic=5: larger than the 4 batches"):
        Run.prepare(config(training=training, rounds=1), data)
    Run.prepare(config(training=training, rounds=2), data)


def test_code_changes_the_grid_through_the_configuration() -> None:
    changed = config(grid="2x4").with_grid_change(3, shape=(4, 2), neighbourhood="moore")
    schedule = changed.grid.build()
    assert schedule.at(2).shape == (2, 4)
    assert (schedule.at(3).shape, schedule.at(3).neighbourhood) == ((4, 2), "moore")
    again = changed.with_grid_change(5, neighbourhood="ring").grid.build()
    assert [again.at(round).neighbourhood for round in (2, 3, 5)] == [
        "von_neumann",
        "moore",
        "ring",
    ]


def test_a_setting_that_is_newer_than_the_run_had_its_default_in_lists_too() -> None:
    """A run that was begun before the setting existed goes on; switching it on is a change."""
    network = {"family": "mlp", "hidden": [8, 8]}
    values: dict[str, Any] = {
        "method": {"name": "gap", "swap": "none"},
        "members": [{}, {"network": network}],
        "grid": {"shape": "1x2", "schedule": [{"round": 2, "neighbourhood": "ring"}]},
    }
    then = validate(values).model_dump(mode="json")
    del then["members"][1]["network"]["layer_norm"]
    del then["members"][0]["gradient_clip"]
    del then["grid"]["schedule"][0]["table"]
    del then["training"]["schedule"]
    assert list(changed_settings(then, validate(values))) == []
    network["layer_norm"] = "both"
    assert list(changed_settings(then, validate(values))) == [
        ("members[1].network.layer_norm", "none", "both")
    ]
    values["members"] = [{}]
    assert [key for key, *_ in changed_settings(then, validate(values))] == ["members"]


def test_a_run_keeps_no_lists_of_what_all_cells_see() -> None:
    words = ["grid=2x2", "data.view=share", "data.share=0.1", "score.extractor=none"]
    run = Run.prepare(load_config("cellular-digits", words))
    assert run.sizes == (1000,) * 4
    assert [view.tolist() for view in run.views] == [run.view(cell).tolist() for cell in range(4)]
    assert run.view(0) is not run.view(0)
    assert torch.equal(run.cell(2).view, run.view(2))


def test_a_cell_that_goes_on_is_what_it_was_and_not_scored_again(
    sorted_digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scoring its first weights, which are replaced at once, was most of what a restart took."""
    run = Run.prepare(config(), sorted_digits, real_samples=100)
    cell = run.cell(1)
    cell.round, scored = 3, cell.assessment
    monkeypatch.setattr(Scorer, "assess", lambda *_: pytest.fail("scored"))
    again = run.restored(cell.parcel())
    assert (again.index, again.round, again.scorer) == (1, 3, run.scorer)
    assert scored is not None
    assert again.assessment is not None
    assert again.assessment.score == scored.score
    for (_, one), (_, other) in zip(cell.gan.roles, again.gan.roles, strict=True):
        assert all(
            torch.equal(value, one.tensors()[name]) for name, value in other.tensors().items()
        )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"score": {"samples": 10**12}},
            "score.samples=1000000000000: would take .*TB for samples",
        ),
        ({"score": {"final_samples": 10**12}}, "score.final_samples=10+: would take"),
        (
            {"network": {"family": "mlp", "hidden": [10**7, 10**7]}},
            "network.family=mlp: would take",
        ),
        (
            {"network": {"family": "mlp", "latent": 10**12}},
            "network.family=mlp: would take .*TB for",
        ),
        ({"network": {"family": "mlp", "hidden": [2**62]}}, "network.family=mlp: of impossible"),
        ({"network": {"family": "dcgan", "width": 10**8}}, "network.family=dcgan: would take"),
        ({"network": {"family": "dcgan", "latent": 2**80}}, "network.family=dcgan: of impossible"),
    ],
)
def test_settings_that_take_more_memory_than_there_is_are_refused_before_they_do(
    change: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^{says}"):
        Run.prepare(tiny_config(**change), tiny_dataset())
