"""The cellular iteration against a slow, plain reference that follows the paper's seven steps.

The reference shares nothing with `remuda.gan` or `remuda.methods` but the
keys of the random streams: networks are dictionaries of float64 tensors, Adam and the losses are
the formulas as printed, the Fréchet distance is its textbook form.

The real thing is run in float64 too. In float32 the two agree as well, but Adam divides a gradient
by its own size, so where a gradient is all but zero its rounding error would fill the tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from remuda.config import Config
from remuda.data import StoredItems
from remuda.streams import choice_stream, tensor_stream
from tests.tiny import PixelExtractor, Population, pixel_scorer, tiny_config, tiny_dataset

SIDE, LATENT, BATCH, SAMPLES, GROUPS = 8, 4, 6, 12, 5
SEED, RATE, BETAS = 3, 0.1, (0.5, 0.999)
ITEMS = tiny_dataset(side=SIDE).items[:].double()
SLOW = partial(pytest.param, marks=pytest.mark.slow)

Array = npt.NDArray[np.float64]


@dataclass
class Net:
    """Weights, Adam's moments and step count, and the genes of one network."""

    weights: dict[str, Tensor]
    first: dict[str, Tensor]
    second: dict[str, Tensor]
    steps: int
    rate: float
    loss: str


@dataclass
class Place:
    """One cell of the reference population."""

    generator: Net
    discriminator: Net
    mixture: dict[int, float]
    features: Array  # of the samples that its generator was scored with
    details: dict[str, Any]


@pytest.fixture
def _float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# ---------------------------------------------------------------------------- the mathematics


def generate(net: Net, noise: Tensor) -> Tensor:
    w = net.weights
    hidden = torch.tanh(noise @ w["0.weight"].T + w["0.bias"])
    return torch.tanh(hidden @ w["2.weight"].T + w["2.bias"]).reshape(-1, 1, SIDE, SIDE)


def probability(net: Net, images: Tensor) -> Tensor:
    w = net.weights
    hidden = torch.tanh(images.reshape(len(images), -1) @ w["1.weight"].T + w["1.bias"])
    return 1 / (1 + torch.exp(-(hidden @ w["3.weight"].T + w["3.bias"])[:, 0]))


def loss_of_generator(name: str, on_fake: Tensor) -> Tensor:
    if name == "minimax":
        return 0.5 * torch.log(1 - on_fake).mean()
    if name == "heuristic":
        return -0.5 * torch.log(on_fake).mean()
    assert name == "least_squares"
    return ((on_fake - 1) ** 2).mean()


def loss_of_discriminator(name: str, on_real: Tensor, on_fake: Tensor) -> Tensor:
    if name in ("minimax", "heuristic"):
        return -0.5 * torch.log(on_real).mean() - 0.5 * torch.log(1 - on_fake).mean()
    assert name == "least_squares"
    return 0.5 * ((on_real - 1) ** 2).mean() + 0.5 * (on_fake**2).mean()


def copy_of(net: Net) -> Net:
    return Net(
        {k: v.clone() for k, v in net.weights.items()},
        {k: v.clone() for k, v in net.first.items()},
        {k: v.clone() for k, v in net.second.items()},
        net.steps,
        net.rate,
        net.loss,
    )


def adam_step(net: Net, loss: Tensor) -> None:
    net.steps += 1
    names = list(net.weights)
    gradients = torch.autograd.grad(loss, [net.weights[name] for name in names])
    for name, g in zip(names, gradients, strict=True):
        net.first[name] = BETAS[0] * net.first[name] + (1 - BETAS[0]) * g
        net.second[name] = BETAS[1] * net.second[name] + (1 - BETAS[1]) * g * g
        first = net.first[name] / (1 - BETAS[0] ** net.steps)
        second = net.second[name] / (1 - BETAS[1] ** net.steps)
        step = net.rate * first / (torch.sqrt(second) + 1e-8)
        net.weights[name] = (net.weights[name].detach() - step).requires_grad_()


def noise_from(stream: torch.Generator, count: int) -> Tensor:
    return torch.randn(count, LATENT, generator=stream).double()


def features_of(images: Tensor) -> Array:
    projection = PixelExtractor(SIDE * SIDE).for_features.double()
    found: Array = (images.reshape(len(images), -1) @ projection).detach().numpy()
    return found


def moments_of(features: Array) -> tuple[Array, Array]:
    return features.mean(0), np.mean([np.outer(row, row) for row in features], axis=0)


def distance_to_real(parts: Sequence[Array], weights: Sequence[float]) -> float:
    """FID of a mixture, with a fifth of the samples left out at a time to remove its bias."""
    corrected = GROUPS * plain_distance(parts, weights)
    for group in range(GROUPS):
        kept = [row for row in range(SAMPLES) if row % GROUPS != group]
        without = plain_distance([part[kept] for part in parts], weights)
        corrected -= len(kept) / SAMPLES * without
    return corrected


def plain_distance(parts: Sequence[Array], weights: Sequence[float]) -> float:
    """FID of a mixture: |m - m'|² + tr(C + C' - 2 (C C')^½)."""
    real_mean, real_second = moments_of(features_of(ITEMS))
    moments = [moments_of(part) for part in parts]
    mean = sum(w * one[0] for w, one in zip(weights, moments, strict=True))
    second = sum(w * one[1] for w, one in zip(weights, moments, strict=True))
    assert isinstance(mean, np.ndarray)
    n, m = len(ITEMS), sum(len(part) for part in parts)
    real_cov = (real_second - np.outer(real_mean, real_mean)) * n / (n - 1)
    cov = (second - np.outer(mean, mean)) * m / (m - 1)
    roots = np.sqrt(np.linalg.eigvals(real_cov @ cov).astype(complex)).real.sum()
    shift = ((real_mean - mean) ** 2).sum()
    return float(shift + np.trace(real_cov) + np.trace(cov) - 2 * roots)


# ---------------------------------------------------------------------------- the population


def neighbours_of(cell: int, side: int) -> list[int]:
    row, column = cell // side, cell % side
    found: list[int] = []
    for other_row, other_column in (
        (row, column - 1),
        (row - 1, column),
        (row, column + 1),
        (row + 1, column),
    ):
        other = (other_row % side) * side + (other_column % side)
        if other != cell and other not in found:
            found.append(other)
    return found


def fresh(state: Mapping[str, Tensor], objective: str) -> Net:
    weights = {name: value.double().requires_grad_() for name, value in state.items()}
    zeros = {name: torch.zeros_like(value) for name, value in weights.items()}
    return Net(weights, dict(zeros), dict(zeros), 0, RATE, objective)


def iterate(
    cell: int, round: int, side: int, world: Sequence[Place], objective: str, how: Mapping[str, Any]
) -> Place:
    """Steps 1 to 7 for one cell; `world` is what everybody published in the round before."""
    # 1. gather
    members = [cell, *neighbours_of(cell, side)]
    generators = [world[member].generator for member in members]
    discriminators = [world[member].discriminator for member in members]
    size = len(members)

    # 2. evaluate: everybody against everybody, on one batch, under one loss
    picked = choice_stream(SEED, cell, round, "evaluation-batch").choice(
        len(ITEMS), BATCH, replace=False
    )
    real = ITEMS[torch.from_numpy(picked)]
    noise = noise_from(tensor_stream(SEED, cell, round, "evaluation-noise"), BATCH)
    under = how["fitness_loss"] or objective

    def over(losses: Sequence[float]) -> float:
        if how["fitness"] == "mean":
            return sum(losses) / len(losses)
        return max(losses) if how["fitness"] == "worst" else min(losses)

    def fitness_of_generator(net: Net) -> float:
        fake = generate(net, noise)
        against = [
            float(loss_of_generator(under, probability(scorer, fake)).detach())
            for scorer in discriminators
        ]
        return over(against)

    def fitness_of_discriminator(net: Net) -> float:
        on_real = probability(net, real)
        against = [
            float(
                loss_of_discriminator(
                    under, on_real, probability(net, generate(maker, noise))
                ).detach()
            )
            for maker in generators
        ]
        return over(against)

    generator_fitness = [fitness_of_generator(net) for net in generators]
    discriminator_fitness = [fitness_of_discriminator(net) for net in discriminators]

    # 3. a tournament for either role; clone the winners
    stream = choice_stream(SEED, cell, round, "tournament")
    winners = []
    for fitness in (generator_fitness, discriminator_fitness):
        first, second = stream.choice(size, 2, replace=False)
        winners.append(int(first) if fitness[first] <= fitness[second] else int(second))
    generator = copy_of(generators[winners[0]])
    discriminator = copy_of(discriminators[winners[1]])

    # 4. mutate
    stream = choice_stream(SEED, cell, round, "mutation")
    mutations: dict[str, Any] = {}
    for role, net in (("generator", generator), ("discriminator", discriminator)):
        coin, step = stream.random(), stream.normal(0.0, how["mutation_rate"])
        if coin < 0.5:
            mutations[f"lr_{role}"] = [net.rate, max(1e-6, net.rate + step)]
            net.rate = max(1e-6, net.rate + step)
    if how["losses"]:
        gene = str(stream.choice(how["losses"]))
        mutations["loss"] = [generator.loss, gene]
        generator.loss = gene

    # 5. train the clones, batch by batch, against opponents drawn from the sub-population, in
    #    which they themselves hold the cell's own place
    order = choice_stream(SEED, cell, round, "order").permutation(len(ITEMS))
    batches = len(ITEMS) // BATCH
    rivals = size if how["opponents"] == "subpopulation" else 1
    stream = choice_stream(SEED, cell, round, "opponents")
    draws = stream.integers([rivals, rivals], size=(batches, 2))
    latents = tensor_stream(SEED, cell, round, "training-noise")
    generator_losses, discriminator_losses = [], []
    for number in range(batches):
        batch = ITEMS[torch.from_numpy(order[number * BATCH : (number + 1) * BATCH])]
        if number % (how["skip"] + 1) == 0:
            drawn = draws[number, 0]
            maker = generator if drawn == 0 else generators[drawn]
            fake = generate(maker, noise_from(latents, BATCH)).detach()
            loss = loss_of_discriminator(
                objective, probability(discriminator, batch), probability(discriminator, fake)
            )
            adam_step(discriminator, loss)
            discriminator_losses.append(float(loss.detach()))
        drawn = draws[number, 1]
        scorer = discriminator if drawn == 0 else discriminators[drawn]
        fake = generate(generator, noise_from(latents, BATCH))
        loss = loss_of_generator(generator.loss, probability(scorer, fake))
        adam_step(generator, loss)
        generator_losses.append(float(loss.detach()))

    # 6. replacement
    centres, centre_report, fitnesses = [], {}, {}
    for role, nets, fitness, child, of_child in (
        ("generator", generators, generator_fitness, generator, fitness_of_generator(generator)),
        (
            "discriminator",
            discriminators,
            discriminator_fitness,
            discriminator,
            fitness_of_discriminator(discriminator),
        ),
    ):
        everybody: list[tuple[float, Net, Any]] = [(of_child, child, "offspring")]
        if how["replacement"] == "elitist":
            everybody += list(zip(fitness, nets, members, strict=True))
        score, centre, where = min(everybody, key=lambda entry: entry[0])
        centres.append(copy_of(centre))
        fitnesses[role] = of_child
        centre_report[role] = {
            "from": where,
            "replaced_worst": of_child <= max(fitness),
            "fitness": score,
        }

    # 7. (1+1)-ES on the mixture of the neighbourhood
    sample = noise_from(tensor_stream(SEED, cell, round, "assess"), SAMPLES)
    features = features_of(generate(centres[0], sample))
    parts = [features, *(world[member].features for member in members[1:])]
    weights = [world[cell].mixture.get(member, 1 / size) for member in members]
    steps = choice_stream(SEED, cell, round, "mixture").normal(0.0, how["mixture_scale"], size)
    tried = [max(0.0, weight + step) for weight, step in zip(weights, steps, strict=True)]
    tried = [weight / sum(tried) for weight in tried]
    changed = distance_to_real(parts, tried) < distance_to_real(parts, weights)
    mixture = dict(zip(members, tried if changed else weights, strict=True))

    details = {
        "parents": {
            "generator": members[winners[0]],
            "discriminator": members[winners[1]],
        },
        "mutations": mutations,
        "fitness": fitnesses,
        "centre": centre_report,
        "mixture": {
            "weights": {str(member): weight for member, weight in mixture.items()},
            "changed": changed,
        },
        "score": distance_to_real([features], [1.0]),
        "losses": (
            sum(generator_losses) / len(generator_losses),
            sum(discriminator_losses) / len(discriminator_losses),
        ),
    }
    return Place(centres[0], centres[1], mixture, features, details)


# ---------------------------------------------------------------------------- the comparison

ROLES = ("generator", "discriminator")
MUSTANGS = ("minimax", "heuristic", "least_squares")


def settings(**changes: Any) -> dict[str, Any]:
    how = {
        "replacement": "elitist",
        "opponents": "subpopulation",
        "fitness": "mean",
        "fitness_loss": None,
        "losses": (),
        "skip": 0,
        "mutation_rate": 1e-2,
        "mixture_scale": 0.1,
    }
    assert changes.keys() <= how.keys()
    return {**how, **changes}


def config_of(side: int, objective: str, how: Mapping[str, Any]) -> Config:
    method = {key: value for key, value in how.items() if key != "skip"}
    return tiny_config(
        seed=SEED,
        grid={"shape": f"{side}x{side}"},
        network={"family": "mlp", "latent": LATENT, "hidden": [8], "activation": "tanh"},
        training={
            "batch_size": BATCH,
            "learning_rate": RATE,
            "betas": BETAS,
            "objective": objective,
            "skip_n_disc_steps": how["skip"],
        },
        method={"name": "cellular", "tournament_size": 2, **method},
        score={"samples": SAMPLES},
    )


def compare(
    side: int, rounds: int, objective: str, how: Mapping[str, Any], tolerance: float = 1e-10
) -> list[dict[str, Any]]:
    """Play both for some rounds; what the reference details of each cell and round."""
    dataset = tiny_dataset(side=SIDE)
    dataset = replace(dataset, items=StoredItems(dataset.items[:].to(torch.get_default_dtype())))
    real = Population(config_of(side, objective, how), dataset, pixel_scorer(dataset))
    world = []
    for cell in real.cells:
        generator = fresh(cell.gan.generator.network.state_dict(), objective)
        discriminator = fresh(cell.gan.discriminator.network.state_dict(), objective)
        sample = noise_from(tensor_stream(SEED, cell.index, 0, "assess"), SAMPLES)
        start = features_of(generate(generator, sample))
        world.append(Place(generator, discriminator, {}, start, {}))

    details = []
    for round in range(1, rounds + 1):
        reports = real.play()
        world = [iterate(cell, round, side, world, objective, how) for cell in range(side * side)]
        for cell, report, place in zip(real.cells, reports, world, strict=True):
            assert not report.diverged
            assert_same_story(report.details, place.details, tolerance)
            assert report.score == pytest.approx(place.details["score"], rel=tolerance)
            losses = report.losses.generator, report.losses.discriminator
            assert losses == pytest.approx(place.details["losses"], rel=tolerance)
            for one, net in (
                (cell.gan.generator, place.generator),
                (cell.gan.discriminator, place.discriminator),
            ):
                assert (one.learning_rate, one.objective.name) == (net.rate, net.loss)
                state = one.optimiser.state()
                for name, weight in one.network.named_parameters():
                    assert_near(weight, net.weights[name], tolerance)
                    assert int(state.get(f"step.{name}", 0)) == net.steps
                    if net.steps:
                        assert_near(state[f"exp_avg.{name}"], net.first[name], tolerance)
                        assert_near(state[f"exp_avg_sq.{name}"], net.second[name], tolerance)
            details.append(place.details)
    return details


def assert_near(value: Tensor, wanted: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(
        value.detach().double(), wanted.detach(), rtol=tolerance, atol=tolerance
    )


def assert_same_story(
    found: Mapping[str, Any], wanted: Mapping[str, Any], tolerance: float
) -> None:
    """Choices must be equal, learning rates exactly so; what was computed, up to rounding."""
    assert found["parents"] == wanted["parents"]
    assert found["mutations"] == wanted["mutations"]
    assert found["fitness"] == pytest.approx(wanted["fitness"], rel=tolerance)
    for role in ROLES:
        centre, expected = found["centre"][role], wanted["centre"][role]
        assert centre["from"] == expected["from"]
        assert centre["replaced_worst"] == expected["replaced_worst"]
        assert centre["fitness"] == pytest.approx(expected["fitness"], rel=tolerance)
    assert found["mixture"]["changed"] == wanted["mixture"]["changed"]
    assert found["mixture"]["weights"] == pytest.approx(wanted["mixture"]["weights"], abs=1e-12)


@pytest.mark.usefixtures("_float64")
@pytest.mark.parametrize("skip", [0, SLOW(1)])
@pytest.mark.parametrize("losses", [SLOW(()), MUSTANGS], ids=["one-loss", "mustangs"])
@pytest.mark.parametrize("fitness", ["mean", SLOW("worst"), SLOW("best")])
@pytest.mark.parametrize("opponents", ["subpopulation", "partner"])
@pytest.mark.parametrize("replacement", ["elitist", "comma"])
def test_cellular_equals_the_reference_on_a_2x2_grid(
    replacement: str, opponents: str, fitness: str, losses: tuple[str, ...], skip: int
) -> None:
    how = settings(
        replacement=replacement, opponents=opponents, fitness=fitness, losses=losses, skip=skip
    )
    compare(2, 2, "heuristic", how)


@pytest.mark.slow
@pytest.mark.usefixtures("_float64")
@pytest.mark.parametrize(
    ("objective", "changes"),
    [
        ("heuristic", {}),
        ("heuristic", {"losses": MUSTANGS, "replacement": "comma", "fitness": "worst"}),
        ("least_squares", {"losses": MUSTANGS, "skip": 1, "fitness_loss": "heuristic"}),
        ("minimax", {"opponents": "partner", "fitness": "best", "fitness_loss": "least_squares"}),
    ],
)
def test_cellular_equals_the_reference_on_a_3x3_grid(
    objective: str, changes: dict[str, Any]
) -> None:
    details = compare(3, 3, objective, settings(**changes))
    assert_eventful(details, elitist="replacement" not in changes)


@pytest.mark.slow
@pytest.mark.usefixtures("_float64")
def test_cellular_equals_the_reference_over_many_rounds() -> None:
    details = compare(2, 6, "heuristic", settings(losses=MUSTANGS, skip=1, fitness="worst"))
    assert_eventful(details, elitist=True)
    rejected = [not entry["centre"][role]["replaced_worst"] for entry in details for role in ROLES]
    assert 0 < sum(rejected) < len(details)
    assert {entry["mutations"]["loss"][1] for entry in details} == set(MUSTANGS)


def test_cellular_equals_the_reference_in_single_precision() -> None:
    compare(2, 2, "heuristic", settings(), tolerance=1e-3)


def assert_eventful(details: Sequence[Mapping[str, Any]], *, elitist: bool) -> None:
    """A comparison in which nothing happens would prove nothing."""
    origins = {entry["centre"][role]["from"] for entry in details for role in ROLES}
    assert "offspring" in origins
    assert (len(origins) > 1) == elitist
    assert len({entry["parents"]["generator"] for entry in details}) > 1
    assert {entry["mixture"]["changed"] for entry in details} == {True, False}
    assert {len(entry["mutations"]) for entry in details} >= {1, 2}
