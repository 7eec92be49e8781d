"""Cells that differ, input noise that fades, presets that build on others."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.config import Config, load_config, preset_names, render, validate
from remuda.errors import ConfigError


def config(**values: Any) -> Config:
    return validate({"method": "independent", "grid": "1x4", **values})


def refusal(**values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        config(**values)
    return str(caught.value)


def test_entries_are_taken_by_turns() -> None:
    found = config(members=[{"prior": "uniform"}, {"gradient_clip": 2.0}, {}])
    assert [found.network_of(cell).prior for cell in range(4)] == [
        "uniform",
        "gaussian",
        "gaussian",
        "uniform",
    ]
    clips = [found.training_of(cell).gradient_clip for cell in range(4)]
    assert clips == [None, 2.0, None, None]


@pytest.mark.parametrize("condition", ["projection", "auto"])
def test_all_members_are_conditional_or_none(condition: str) -> None:
    conditional = {"family": "resnet", "condition": condition, "classes": 10}
    found = refusal(network={"family": "resnet"}, members=[{}, {"network": conditional}])
    assert "members: some networks are conditioned on labels and others not" in found
    assert "allowed: the same network.classes for all" in found


def test_a_member_without_a_setting_has_that_of_all() -> None:
    found = config(
        training={"gradient_clip": 3.0, "input_noise": [[0.5, 0.1]]},
        network={"family": "mlp", "prior": "uniform"},
        members=[{}, {"gradient_clip": 1.0, "prior": "gaussian", "input_noise": []}],
    )
    assert found.training_of(0) == found.training
    assert found.network_of(0) == found.network
    assert found.training_of(1).gradient_clip == 1.0
    assert found.training_of(1).input_noise == ()
    assert found.network_of(1).prior == "gaussian"


def test_a_members_network_is_its_own_and_may_be_a_word() -> None:
    found = config(members=[{"network": "dcgan"}, {"network": {"family": "gran", "steps": 3}}])
    assert [found.network_of(cell).family for cell in range(4)] == ["dcgan", "gran"] * 2
    assert found.network_of(1).noise_size == 300


def test_members_come_back_from_what_is_printed(tmp_path: Any) -> None:
    found = config(
        members=[{"prior": "uniform"}, {"network": "gran", "input_noise": [[0.5, 0.1]]}],
        init_from=["runs/a", "runs/b:1"],
    )
    path = tmp_path / "config.yaml"
    path.write_text(render(found))
    assert load_config(str(path)) == found


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"members": [{}] * 5}, "members: 5 entries for 4 cells; allowed: at most 4"),
        ({"members": [{"prior": "normal"}]}, "members[0].prior=normal: not allowed"),
        ({"members": [{"width": 3}]}, "members[0].width=3: unknown key"),
        (
            {"members": [{"network": "grun"}]},
            "members[0].network.family=grun: unknown; did you mean gran? allowed: mlp, dcgan, gran",
        ),
        (
            {"members": [{}, {"network": {"family": "gran", "steps": 0}}]},
            "members[1].network.steps=0: not allowed",
        ),
        (
            {"training": {"input_noise": [[0.5, 0.1], [0.25, 0.3]]}},
            "each step must end later than the one before",
        ),
        ({"training": {"input_noise": [[1.5, 0.1]]}}, "training.input_noise[0]"),
        (
            {"method": "cellular", "members": [{}, {"prior": "uniform"}]},
            "members[1]: its networks differ from those of members[0]",
        ),
        (
            {
                "training": {"objective": "relativistic"},
                "members": [{}, {"network": {"family": "mlp", "batch_norm": True}}],
            },
            "needs a discriminator without batch norm",
        ),
    ],
)
def test_impossible_members_are_refused(values: dict[str, Any], says: str) -> None:
    assert says in refusal(**values)


def test_input_noise_fades_with_the_rounds() -> None:
    training = config(training={"input_noise": [[0.25, 0.3], [0.5, 0.1]]}).training
    found = [training.noise_in(round, 8) for round in range(1, 9)]
    assert found == [0.3, 0.3, 0.1, 0.1, 0, 0, 0, 0]
    assert [training.noise_in(round, 1) for round in (1,)] == [0.3]
    assert config().training.noise_in(1, 8) == 0


@pytest.mark.parametrize("name", [name for name in preset_names() if name.startswith("single-")])
def test_single_presets_differ_from_their_counterparts_in_the_number_of_members_only(
    name: str,
) -> None:
    single, population = load_config(name), load_config(name.replace("single-", "gap-"))
    assert single.cells == 1
    assert population.cells == 4
    same = {"name": "x", "members": (), "grid": population.grid}
    assert single.model_copy(update=same) == population.model_copy(update=same)


@pytest.mark.parametrize(
    "name", [name for name in preset_names() if name.startswith(("gap-", "single-"))]
)
def test_gap_and_its_baselines_clip_the_gradients_of_both_networks(name: str) -> None:
    found = load_config(name)
    for training in map(found.training_of, range(found.cells)):
        assert training.gradient_clip == 10.0
        assert training.of_discriminator.gradient_clip == 10.0


def test_the_hybrid_is_two_dcgans_and_two_grans() -> None:
    found = load_config("gap-mnist-hybrid")
    families = [found.network_of(cell).family for cell in range(found.cells)]
    assert sorted(families) == ["dcgan", "dcgan", "gran", "gran"]
