"""The averaged generator: a plain reference, and that it goes wherever its generator goes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from remuda.config import TrainingSettings
from remuda.errors import ConfigError
from remuda.gan.average import STEPS, WEIGHTS
from remuda.gan.cell import Cell
from remuda.gan.learner import Learner
from remuda.gan.networks import draw_noise, generate
from remuda.gan.parcels import AVERAGE, GENERATOR, Parcel, decode_parcel, strip_prefix
from remuda.methods import METHODS
from tests.tiny import (
    DCGAN,
    MLP,
    Population,
    gan_tensors,
    labelled,
    one_thread,
    pixel_scorer,
    same,
    tiny_cell,
    tiny_config,
    tiny_dataset,
)

AVERAGED = {"average": 4.0, "average_ramp": 0.5}
CONDITIONAL: dict[str, Any] = {
    "family": "class_dcgan",
    "width": 4,
    "latent": 4,
    "condition": "auxiliary",
    "classes": 4,
}
SETUPS: dict[str, dict[str, Any]] = {
    "mlp": {"training": AVERAGED},
    "batch norm": {"network": DCGAN, "training": AVERAGED},
    "conditional": {"network": CONDITIONAL, "training": AVERAGED},
    "gran": {"network": {**DCGAN, "family": "gran", "steps": 2}, "training": AVERAGED},
    "critic": {"training": {**AVERAGED, "objective": "wasserstein", "n_critic": 2}},
    "rmsprop": {"training": {**AVERAGED, "optimiser": "rmsprop"}},
}
METHOD_SETUPS: dict[str, dict[str, Any]] = {
    **{name: {"method": {"name": name}} for name in METHODS},
    "elitist": {"method": {"name": "cellular", "replacement": "elitist", "losses": ["minimax"]}},
    "generators": {"method": {"name": "gap", "swap": "generators"}},
    "generators move": {"method": {"name": "gap", "swap": "generators", "optimiser": "moves"}},
    "replicas": {"method": {"name": "class_parallel", "replicas": 2, "within": {"name": "gap"}}},
}
every_setup = pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
every_method = pytest.mark.parametrize("method", METHOD_SETUPS.values(), ids=METHOD_SETUPS)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def averaged_cell(setup: dict[str, Any]) -> Cell:
    return tiny_cell(tiny_config(**setup), labelled(tiny_dataset()))


def copied(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


class Watched:
    """The raw weights of a learner: at its start, and after every step it takes."""

    def __init__(self, learner: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen = [copied(learner.network)]
        step = learner.descend

        def and_look(gradients: Sequence[Tensor]) -> None:
            step(gradients)
            self.seen.append(copied(learner.network))

        monkeypatch.setattr(learner, "descend", and_look)


def reference(seen: list[dict[str, Tensor]], half_life: float, ramp: float) -> dict[str, Tensor]:
    """The average, written down plainly: of each step, what its share has decayed to since."""
    steps = len(seen) - 1
    decays = [0.5 ** (1 / min(half_life, ramp * step)) for step in range(1, steps + 1)]
    shares = [
        (1 - decays[step - 1] if step else 1.0) * math.prod(decays[step:])
        for step in range(steps + 1)
    ]
    assert sum(shares) == pytest.approx(1)
    found = dict(seen[-1])  # counts, such as batch norm's of its batches, are the last
    for name, last in seen[-1].items():
        if last.is_floating_point():
            found[name] = torch.zeros(last.shape, dtype=torch.float64)
            for share, weights in zip(shares, seen, strict=True):
                found[name] += share * weights[name].double()
    return found


# ---------------------------------------------------------------------------- the arithmetic


@every_setup
def test_it_is_the_average_of_the_weights_after_every_step(
    setup: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = averaged_cell(setup)
    learner = cell.gan.generator
    watched = Watched(learner, monkeypatch)
    for cell.round in (1, 2, 3):
        cell.train(cell.gan)
    assert learner.average is not None
    assert learner.average.steps == len(watched.seen) - 1 > 4
    wanted = reference(watched.seen, 4.0, 0.5)
    found = learner.average.network.state_dict()
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        torch.testing.assert_close(value.double(), wanted[name].double(), rtol=1e-5, atol=1e-6)
        assert torch.equal(value, watched.seen[-1][name]) == (not value.is_floating_point()), name
    if setup.get("network") is DCGAN:
        assert any(name.endswith("running_var") for name in found)


def left_of_a_one(settings: TrainingSettings, steps: int, before: int = 0) -> float:
    """What an average of 1 is after steps of a network that is 0."""
    learner = Learner(nn.Linear(1, 1, bias=False), settings, averages=True)
    assert learner.average is not None
    learner.average.steps = before
    average = learner.average.network.get_parameter("weight")
    with torch.no_grad():
        average.fill_(1)
        learner.network.get_parameter("weight").fill_(0)
    for _ in range(steps):
        learner.average.update()
    return float(average)


def test_half_of_what_it_was_is_left_after_a_half_life() -> None:
    settings = TrainingSettings(average=8, average_ramp=1)
    assert left_of_a_one(settings, 8, before=100) == pytest.approx(0.5)


def test_the_beginning_is_forgotten_because_the_half_life_grows_with_the_steps() -> None:
    def left(ramp: float, steps: int) -> float:
        return left_of_a_one(TrainingSettings(average=1e9, average_ramp=ramp), steps)

    assert left(0.1, 1) == pytest.approx(0.5**10)
    assert left(0.5, 100) < left(1.0, 100) < 0.06


@every_setup
def test_training_is_what_it_is_without_it(setup: dict[str, Any]) -> None:
    plain = {**setup, "training": {**setup["training"], "average": None}}
    cells = [averaged_cell(one) for one in (setup, plain)]
    for cell in cells:
        for cell.round in (1, 2):
            cell.train(cell.gan)
    found, wanted = (gan_tensors(cell.gan) for cell in cells)
    own = {name for name in found if name.startswith(AVERAGE) or name == f"generator.{STEPS}"}
    assert found.keys() - own == wanted.keys()
    assert all(torch.equal(found[name], value) for name, value in wanted.items())
    assert {AVERAGE + name.removeprefix(GENERATOR) for name in wanted if GENERATOR in name} < own


def test_without_it_a_parcel_holds_what_it_always_held() -> None:
    cell = tiny_cell()
    cell.train(cell.gan)
    parcel = cell.parcel()
    kinds = {tuple(name.split(".")[:2]) for name in parcel.tensors}
    roles = ("generator", "discriminator")
    assert kinds == {(role, part) for role in roles for part in ("network", "adam")}
    assert parcel.meta.keys() == {"genes", "memory"}


# ---------------------------------------------------------------------------- where it goes


@every_setup
def test_a_parcel_holds_it_and_a_restored_cell_goes_on_with_it(setup: dict[str, Any]) -> None:
    cell, twin = averaged_cell(setup), averaged_cell(setup)
    cell.train(cell.gan)
    twin.restore(decode_parcel(cell.parcel().encoded))
    assert same(gan_tensors(twin.gan), gan_tensors(cell.gan))
    for one in (cell, twin):
        one.round = 2
        one.train(one.gan)
    assert same(gan_tensors(twin.gan), gan_tensors(cell.gan))


@pytest.mark.parametrize("steps", [None, torch.tensor(-1), torch.tensor(2.0), torch.ones(2).long()])
def test_a_parcel_without_a_sound_one_is_refused(steps: Tensor | None) -> None:
    cell = averaged_cell({"training": AVERAGED})
    parcel = cell.parcel()
    tensors = {name: value for name, value in parcel.tensors.items() if STEPS not in name}
    if steps is not None:
        tensors[f"generator.{STEPS}"] = steps
    with pytest.raises(ValueError, match="an average of weights without a valid averaged_steps"):
        cell.restore(Parcel(0, 0, tensors, parcel.meta))


def test_a_clone_has_one_of_its_own() -> None:
    cell = averaged_cell({"training": AVERAGED})
    cell.train(cell.gan)
    twin, before = cell.gan.clone(), gan_tensors(cell.gan)
    assert same(gan_tensors(twin), before)
    cell.round = 2
    cell.train(twin)
    assert same(gan_tensors(cell.gan), before)
    assert not same(gan_tensors(twin), before)


def test_discriminators_have_none() -> None:
    cell = averaged_cell({"training": AVERAGED})
    assert cell.gan.discriminator.average is None
    assert not any(WEIGHTS in name for name in cell.gan.discriminator.tensors())


@pytest.mark.parametrize(
    "method",
    # Averaging mixes the averages of several generators: see test_averaging.py.
    [setup for name, setup in METHOD_SETUPS.items() if name != "averaging"],
    ids=[name for name in METHOD_SETUPS if name != "averaging"],
)
def test_under_every_method_it_belongs_to_its_generator(
    method: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever a cell's generator is after a round, its average is that of this generator's steps.

    So it is recomputed from the weights that every generator ever had, found by those it has now.
    """
    history: dict[bytes, list[dict[str, Tensor]]] = {}
    step = Learner.descend

    def key(network: nn.Module) -> bytes:
        return b"".join(value.numpy().tobytes() for value in network.state_dict().values())

    def and_look(learner: Learner, gradients: Sequence[Tensor]) -> None:
        if learner.average is None:
            return step(learner, gradients)
        before = history.get(key(learner.network), [copied(learner.network)])
        step(learner, gradients)
        history[key(learner.network)] = [*before, copied(learner.network)]
        return None

    monkeypatch.setattr(Learner, "descend", and_look)
    population = Population(tiny_config(training=AVERAGED, **method))
    for _ in range(3):
        population.play()
    for cell in population.cells:
        learner = cell.gan.generator
        assert learner.average is not None
        past = history[key(learner.network)]
        assert learner.average.steps == len(past) - 1
        wanted = reference(past, 4.0, 0.5)
        for name, value in learner.average.network.state_dict().items():
            torch.testing.assert_close(value, wanted[name].float(), rtol=1e-5, atol=1e-6)


def test_a_cell_that_diverges_falls_back_to_its_last_good_one() -> None:
    population = Population(
        tiny_config(method={"name": "independent"}, grid={"shape": "1x1"}, training=AVERAGED)
    )
    population.play()
    cell = population.cells[0]
    before = gan_tensors(cell.gan)
    cell.gan.discriminator.learning_rate = 1e38
    (report,) = population.play()
    assert report.diverged
    assert same(gan_tensors(cell.gan), before)


def test_an_average_that_overflowed_counts_as_diverged() -> None:
    cell = averaged_cell({"training": AVERAGED})
    assert cell.gan.generator.average is not None
    with torch.no_grad():
        next(cell.gan.generator.average.network.parameters())[0] = torch.inf
    assert not cell.gan.is_finite()


# ---------------------------------------------------------------------------- what it is for


@pytest.mark.parametrize("network", [MLP, DCGAN, CONDITIONAL], ids=["mlp", "dcgan", "conditional"])
def test_samples_and_scores_are_those_of_the_average(network: dict[str, Any]) -> None:
    dataset = labelled(tiny_dataset())
    cell = tiny_cell(tiny_config(network=network, training=AVERAGED), dataset)
    cell.scorer = pixel_scorer(dataset)
    cell.train(cell.gan)
    parcel = cell.parcel()
    alone = tiny_cell(tiny_config(network=network), dataset).gan.generator.network.eval()
    noise = draw_noise(cell.network, 12, cell.streams.tensors("assess"))
    picked = cell.streams.choices("assess-labels").choice(len(cell.view), 12)
    assert dataset.labels is not None
    labels = dataset.labels[picked] if cell.network.num_classes else None
    drawn = {}
    for part in (AVERAGE, GENERATOR):
        alone.load_state_dict(strip_prefix(part, parcel.tensors))
        with torch.no_grad():
            drawn[part] = generate(alone, noise, labels)
    assert torch.equal(cell.images(12, "assess"), drawn[AVERAGE])
    assert not torch.equal(drawn[AVERAGE], drawn[GENERATOR])
    found = cell.assess()
    assert found is not None
    assert found.score == cell.scorer.assess(drawn[AVERAGE]).score


def test_fitness_opponents_and_discriminator_costs_are_those_of_the_raw_networks() -> None:
    """Two runs that differ in nothing but their averages evolve alike."""

    def played(average: float) -> tuple[list[Any], list[dict[str, Tensor]]]:
        dataset = tiny_dataset(30)
        dataset = type(dataset)(**{**vars(dataset), "validation": tiny_dataset(12, seed=1).items})
        training = {**AVERAGED, "average": average}
        population = Population(tiny_config(training=training), dataset, pixel_scorer(dataset))
        reports = [report for _ in range(3) for report in population.play()]
        details = [{**report.details, "mixture": None} for report in reports]
        raw = [gan_tensors(cell.gan) for cell in population.cells]
        return details, [{k: v for k, v in one.items() if WEIGHTS not in k} for one in raw]

    (one, left), (other, right) = played(2.0), played(8.0)
    assert "cost" in one[0]
    assert one == other
    assert all(same(*pair) for pair in zip(left, right, strict=True))


# ---------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("average", 0, "training.average=0: not allowed; allowed: a number above 0"),
        ("average", "ever", "training.average=ever: not allowed; allowed: a number above 0"),
        ("average_ramp", 1.5, "average_ramp=1.5: not allowed; allowed: a number above 0.0 at most"),
    ],
)
def test_impossible_ones_are_refused(name: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        tiny_config(training={name: value})
    assert says.replace("0.0", "0") in str(refusal.value)
