"""Averaging as whole runs: same bits on either engine, killed and resumed, and one GAN in the end.

With three cells, whose mean no float holds exactly.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from remuda import load
from remuda.config import load_config
from remuda.errors import ConfigError
from remuda.gan.parcels import AVERAGE, Parcel, strip_prefix
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.runs.initial import initial_parcels
from remuda.runs.population import load_population
from remuda.runs.prepare import Run
from remuda.runs.store import RunFolder
from remuda.streams import stream_key
from tests.parallel.runs import in_order
from tests.tiny import same
from tests.tiny_runs import happenings, killed_and_resumed, tiny, tree

pytestmark = pytest.mark.slow

DCGAN = "network={family: dcgan, latent: 4, width: 2}"


def words(data: Path, run: Path, *more: str) -> list[str]:
    plain = [word for word in tiny(data, run) if not word.startswith(("method.", "network."))]
    return [*plain, "method=averaging", DCGAN, "training.average=5", "run.sheet_every=0", *more]


def settings(data: Path, run: Path, *more: str) -> Any:
    source, *overrides = words(data, run, *more)
    return load_config(source, overrides)


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("averaging") / "run"
    training.train(settings(data, run), engine=Engine("local"))
    return run


@pytest.fixture(scope="module")
def strangers(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("strangers") / "apart"
    training.train(settings(data, run, "method=independent", "rounds=1"), engine=Engine("local"))
    return run


def last(run: Path) -> dict[int, Parcel]:
    folder = RunFolder(run)
    return folder.load_checkpoint(folder.checkpoints()[-1])


def result(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "result.json").read_text())
    return found


# ---------------------------------------------------------------------------- the same bits


def test_two_processes_give_the_bits_of_one(data: Path, tmp_path: Path, undisturbed: Path) -> None:
    training.train(settings(data, tmp_path / "run"), engine=Engine("process", 2))
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


# ---------------------------------------------------------------------------- one generator


def test_the_ensemble_is_one_generator_with_the_mean_of_the_weights(undisturbed: Path) -> None:
    (member,) = load(undisturbed).members
    assert (member.cell, member.weight) == (0, 1.0)
    states = [strip_prefix(AVERAGE, parcel.tensors) for parcel in last(undisturbed).values()]
    assert len(states) == 3
    for name, value in member.state.items():
        values = torch.stack([state[name] for state in states])
        if value.is_floating_point():
            torch.testing.assert_close(value, values.mean(0), rtol=1e-5, atol=1e-6)
            continue
        assert torch.equal(value, values.amax(0))
    assert not any(same(member.state, state) for state in states)


def test_it_is_saved_loaded_and_sampled_as_any_other(undisturbed: Path) -> None:
    ensemble = load(undisturbed)
    samples = ensemble.sample(7, seed=2)
    assert samples.shape == (7, 1, 28, 28)
    assert (samples == load(undisturbed / "ensemble").sample(7, seed=2)).all()
    assert (undisturbed / "ensemble" / "samples.png").exists()


def test_the_result_says_that_it_is_merged(undisturbed: Path) -> None:
    found = result(undisturbed)
    assert found["merged"] is True
    assert found["chosen"] == "the average of all cells' weights"
    assert found["mixture"] == {"0": 1 / 3, "1": 1 / 3, "2": 1 / 3}
    assert found["scores"] is not None


def test_the_score_of_a_round_is_that_of_the_merged_generators_samples(
    data: Path, undisturbed: Path
) -> None:
    event = [one for one in happenings(undisturbed) if one["event"] == "population"][-1]
    scorer = Run.prepare(settings(data, undisturbed)).scorer
    assert scorer is not None
    seed = stream_key(settings(data, undisturbed).seed, 0, event["round"], "merged")
    samples = load(undisturbed).draw(20, seed)
    assert event["score"] == pytest.approx(scorer.assess(samples).score, rel=1e-6)
    assert event["merged"] is True
    cells = [one for one in happenings(undisturbed) if one["round"] == event["round"]]
    assert event["score"] not in [one["score"] for one in cells if one["event"] == "round"]


def test_the_events_tell_the_diversity(undisturbed: Path) -> None:
    events = [one for one in happenings(undisturbed) if one["event"] == "population"]
    for event in events:
        assert set(event["diversity"]) == {"generators", "discriminators", "spread"}
        assert event["diversity"]["generators"] == event["diversity"]["discriminators"] == 1
        assert isinstance(event["diversity"]["spread"], float)


def test_runs_of_other_methods_are_not_merged(strangers: Path) -> None:
    assert result(strangers)["merged"] is False
    events = [one for one in happenings(strangers) if one["event"] == "population"]
    assert events[-1]["diversity"]["generators"] == 3
    assert result(strangers)["genes"] == {
        "cell": min(map(int, result(strangers)["mixture"])),
        "training.learning_rate": 0.001,
        "training.discriminator_learning_rate": 0.001,
        "training.objective": "heuristic",
        "training.r1": 0.0,
        "training.average": 5.0,
    }


def test_all_have_met_the_discriminator_that_all_come_from(undisturbed: Path) -> None:
    found = load_population(undisturbed)
    assert [member.lineage for member in found.members] == [f"{found.id}/0"] * 3
    assert all(f"{found.id}/0" in member.met for member in found.members)
    assert not found.is_isolated
    assert "0" in load(undisturbed).members[0].met


# ---------------------------------------------------------------------------- init_from


AVERAGING = ("method=averaging",)
BY_AVERAGE = ("method=cellular", "method.exchange=average")
every_way = pytest.mark.parametrize("method", [AVERAGING, BY_AVERAGE], ids=["method", "exchange"])


def begun(
    data: Path, folder: Path, sources: str, method: tuple[str, ...], *more: str
) -> dict[str, Parcel]:
    """What the cells of a new run start from."""
    config = settings(data, folder / "new", *method, f"init_from={sources}", *more)
    return initial_parcels(Run.prepare(config))


@every_way
def test_strangers_are_refused(
    method: tuple[str, ...], data: Path, tmp_path: Path, strangers: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        begun(data, tmp_path, f"[{strangers}]", method)
    which = "method=averaging" if method == AVERAGING else "method.exchange=average"
    assert str(caught.value) == (
        "init_from: cells 0 and 1 start from GANs without a common origin, and "
        f"{which} would destroy both; allowed: GANs of one run with averaging, or one GAN "
        "for all cells"
    )


def test_strangers_may_train_side_by_side_otherwise(
    data: Path, tmp_path: Path, strangers: Path
) -> None:
    assert len(begun(data, tmp_path, f"[{strangers}]", ("method=cellular",))) == 3


@every_way
def test_one_gan_for_all_cells_is_a_common_start(
    method: tuple[str, ...], data: Path, tmp_path: Path, strangers: Path
) -> None:
    sources = ", ".join([f"'{strangers}:1'"] * 3)
    found = begun(data, tmp_path, f"[{sources}]", method)
    first = found["initial-0000.safetensors"]
    for parcel in found.values():
        mine = {k: v for k, v in parcel.tensors.items() if ".network." in k}
        assert same(mine, {k: first.tensors[k] for k in mine})
        assert parcel.meta["memory"]["ancestor"] == f"{RunFolder(strangers).id()}/1"
        assert parcel.meta["memory"]["lineage"] == f"{RunFolder(strangers).id()}/1"


@every_way
def test_the_generator_of_an_ensemble_for_all_cells_is_a_common_start(
    method: tuple[str, ...], data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    sources = ", ".join([str(undisturbed / "ensemble")] * 3)
    found = begun(data, tmp_path, f"[{sources}]", method)
    first = found["initial-0000.safetensors"]
    for parcel in found.values():
        mine = {k: v for k, v in parcel.tensors.items() if ".network." in k}
        assert same(mine, {k: first.tensors[k] for k in mine})


@every_way
def test_a_run_with_averaging_can_be_gone_on_with(
    method: tuple[str, ...], data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    found = begun(data, tmp_path, f"[{undisturbed}]", method)
    for cell, parcel in enumerate(found.values()):
        assert parcel.meta["memory"]["ancestor"] == f"{RunFolder(undisturbed).id()}/0"
        mine = {k: v for k, v in parcel.tensors.items() if ".network." in k}
        assert same(mine, {k: last(undisturbed)[cell].tensors[k] for k in mine})


def test_cells_averaged_after_a_start_from_earlier_gans_are_relatives(
    data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    config = settings(data, tmp_path / "new", f"init_from=[{undisturbed}]", "rounds=2")
    training.train(config, engine=Engine("local"))
    events = [one for one in happenings(tmp_path / "new") if one["event"] == "round"]
    assert [one["averaged_with"] for one in events if one["round"] == 2] == [[1, 2], [0, 2], [0, 1]]
