"""Whole runs with schedules, hinge, norms and shared fakes: the same bits on either engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import remuda
from remuda.config import load_config
from remuda.parallel import training
from remuda.parallel.engines import Engine
from tests.parallel.runs import in_order, words
from tests.tiny_runs import killed_and_resumed, tree

pytestmark = pytest.mark.slow

# Rounds of three batches, so that neither the rise nor the fall of the rates ends with a round.
COMMON = (
    "training.schedule=cosine",
    "training.discriminator_schedule=linear",
    "training.discriminator_learning_rate=0.004",
    "training.warmup=5",
    "training.share_fakes=true",
    "training.objective=hinge",
    "method.losses=[]",
)
MLP = ("network.hidden=[8, 6]", "network.layer_norm=both")
KINDS = {
    "cellular": (*COMMON, *MLP, "method.opponents=subpopulation"),
    "gap": (
        *COMMON,
        *("method=gap", "training.r1=0.5", "training.average=5"),
        "network={family: dcgan, latent: 4, width: 2, layer_norm: discriminator}",
    ),
    "averaging": (
        *("method=averaging", "training.average=5", "training.share_fakes=true"),
        "network={family: dcgan, latent: 4, width: 2, spectral_norm: true, condition: auto, "
        "label_norm: true}",
    ),
}
Trained = dict[str, Path]


def of_kind(kind: str, data: Path, run: Path) -> list[str]:
    kept = (word for word in words(data, run) if kind == "cellular" or "hidden" not in word)
    named = [word for word in kept if not word.startswith("method.")]
    return [*named, *(word for word in KINDS[kind] if kind == "cellular" or "losses" not in word)]


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    runs = {kind: tmp_path_factory.mktemp("undisturbed") / kind for kind in KINDS}
    for kind, run in runs.items():
        source, *overrides = of_kind(kind, data, run)
        training.train(load_config(source, overrides), engine=Engine("local"))
    return runs


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_give_the_weights_of_one(
    kind: str, data: Path, tmp_path: Path, undisturbed: Trained
) -> None:
    source, *overrides = of_kind(kind, data, tmp_path / "run")
    training.train(load_config(source, overrides), engine=Engine("process", 2))
    assert tree(tmp_path / "run") == tree(undisturbed[kind])
    assert in_order(tmp_path / "run") == in_order(undisturbed[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("point", ["training a batch", "after the first cell file"])
def test_killed_in_the_middle_and_resumed_it_ends_in_the_same_bits(
    point: str, kind: str, data: Path, tmp_path: Path, undisturbed: Trained
) -> None:
    run = tmp_path / "run"
    killed_and_resumed(tmp_path, of_kind(kind, data, run), point, "local")
    assert tree(run) == tree(undisturbed[kind])
    assert in_order(run) == in_order(undisturbed[kind])


def test_events_tell_the_genes_and_not_how_far_the_schedule_is(undisturbed: Trained) -> None:
    rounds = [event for event in in_order(undisturbed["gap"]) if "cell" in event]
    assert {event["lr_generator"] for event in rounds} == {0.001}
    assert {event["lr_discriminator"] for event in rounds} == {0.004}


@pytest.mark.parametrize("kind", KINDS)
def test_the_ensemble_is_loaded_with_its_norms(kind: str, undisturbed: Trained) -> None:
    ensemble = remuda.load(undisturbed[kind])
    samples = ensemble.sample(4, seed=1)
    assert samples.shape == (4, 1, 28, 28)
    assert np.array_equal(samples, remuda.load(undisturbed[kind]).sample(4, seed=1))
