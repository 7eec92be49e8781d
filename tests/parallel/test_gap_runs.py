"""GAP as whole runs: four members that differ, on either engine, killed and resumed. Same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda import load
from remuda.config import load_config
from remuda.methods import ancestor, lineage, lineages_met
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.runs.population import load_population
from remuda.runs.store import RunFolder
from tests.parallel.runs import in_order
from tests.tiny_runs import happenings, killed_and_resumed, tiny, tree

pytestmark = pytest.mark.slow

MEMBERS = (
    "[{prior: uniform}, "
    "{network: {family: gran, latent: 3, width: 2, discriminator_width: 2, steps: 2}}, "
    "{input_noise: [[0.5, 0.3]]}, {gradient_clip: 0.5}]"
)


PRIORS = ("method.swap=generators", "members=[{prior: uniform}, {}, {}, {}]", "run.sheet_every=4")


def words(data: Path, run: Path, *more: str) -> list[str]:
    plain = [
        word
        for word in tiny(data, run)
        if not word.startswith(("method.", "network.", "training."))
    ]
    return [
        *plain,
        "rounds=4",
        "grid=1x4",
        "method=gap",
        "method.swap_every=0.5",
        "method.ensemble=uniform",
        "network={family: dcgan, latent: 4, width: 2}",
        "training.batch_size=10",
        "data.validation=20",
        f"members={MEMBERS}",
        "run.sheet_every=0",
        *more,
    ]


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    source, *overrides = words(data, run)
    training.train(load_config(source, overrides), engine=Engine("local"))
    return run


def test_two_processes_give_the_weights_of_one(
    data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    source, *overrides = words(data, tmp_path / "run")
    training.train(load_config(source, overrides), engine=Engine("process", 2))
    assert tree(tmp_path / "run") == tree(undisturbed)
    assert in_order(tmp_path / "run") == in_order(undisturbed)


@pytest.mark.parametrize(
    ("point", "engine"), [("training a batch", "process"), ("after the first cell file", "local")]
)
def test_killed_in_the_middle_and_resumed_it_ends_in_the_same_bits(
    point: str, engine: str, data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    run = tmp_path / "run"
    killed_and_resumed(tmp_path, words(data, run), point, engine)
    assert tree(run) == tree(undisturbed)
    assert in_order(run) == in_order(undisturbed)


def test_the_events_tell_swaps_lineages_and_costs(undisturbed: Path) -> None:
    events = [event for event in happenings(undisturbed) if event["event"] == "round"]
    assert len(events) == 16
    for event in events:
        assert set(event["cost"]) == {"train", "validation"}
        assert (event["swap"] is None) == (event["round"] == 1)
        assert event["images"] == 20  # half of the two batches of 10 that 40 items make
    for round in (1, 2, 3, 4):
        held = [event["lineage"] for event in events if event["round"] == round]
        assert sorted(held) == list("0123")


def test_lineages_lie_in_the_checkpoints(undisturbed: Path) -> None:
    folder = RunFolder(undisturbed)
    parcels = folder.load_checkpoint(folder.checkpoints()[-1])
    last = [e for e in happenings(undisturbed) if e["event"] == "round" and e["round"] == 4]
    assert {lineage(parcel) for parcel in parcels.values()} == set("0123")
    for event in last:
        assert lineage(parcels[event["cell"]]) == event["lineage"]
        assert len(lineages_met(parcels[event["cell"]])) == event["met"] > 1


def test_the_ensemble_of_members_that_differ_can_be_sampled(undisturbed: Path) -> None:
    ensemble = load(undisturbed)
    families = [ensemble.network_of(member).family for member in ensemble.members]
    assert families == ["dcgan", "gran", "dcgan", "dcgan"]
    assert ensemble.network_of(ensemble.members[0]).prior == "uniform"
    assert ensemble.sample(12, seed=1).shape == (12, 1, 28, 28)


# ---------------------------------------------------------------------------- priors that travel


@pytest.fixture(scope="module")
def generators(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose first member alone has uniform noise, and whose generators are swapped."""
    run = tmp_path_factory.mktemp("generators") / "run"
    source, *overrides = words(data, run, *PRIORS)
    training.train(load_config(source, overrides), engine=Engine("local"))
    return run


def test_with_priors_that_travel_two_processes_give_the_bits_of_one(
    data: Path, tmp_path: Path, generators: Path
) -> None:
    source, *overrides = words(data, tmp_path / "run", *PRIORS)
    training.train(load_config(source, overrides), engine=Engine("process", 2))
    assert tree(tmp_path / "run") == tree(generators)
    assert in_order(tmp_path / "run") == in_order(generators)


def test_with_priors_that_travel_a_killed_run_resumes_to_the_same_bits(
    data: Path, tmp_path: Path, generators: Path
) -> None:
    run = tmp_path / "run"
    killed_and_resumed(tmp_path, words(data, run, *PRIORS), "after the first cell file", "local")
    assert tree(run) == tree(generators)
    assert in_order(run) == in_order(generators)


def test_the_ensemble_and_the_population_know_whose_noise_is_uniform(generators: Path) -> None:
    folder = RunFolder(generators)
    parcels = folder.load_checkpoint(folder.checkpoints()[-1])
    (uniform,) = [cell for cell, parcel in parcels.items() if ancestor(parcel) == "0"]
    assert uniform != 0
    expected = ["uniform" if cell == uniform else "gaussian" for cell in range(4)]
    ensemble = load(generators)
    assert [ensemble.network_of(member).prior for member in ensemble.members] == expected
    assert [member.network.prior for member in load_population(generators).members] == expected
