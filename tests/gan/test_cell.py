"""A cell: how a round of training runs, and that a parcel is all there is to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from remuda.config import TrainingSettings
from remuda.gan.cell import Cell
from remuda.gan.game import Batch, Game, InputNoise, Losses, Rivals
from remuda.gan.learner import Gan, Learner
from remuda.gan.networks import draw_noise
from remuda.gan.objectives import Heuristic, find_objective
from remuda.gan.parcels import Parcel
from remuda.methods import METHODS
from remuda.methods.cellular import CellularState
from tests.tiny import (
    DCGAN,
    MLP,
    Population,
    gan_tensors,
    one_thread,
    pixel_scorer,
    same,
    take_step,
    tiny_cell,
    tiny_config,
    tiny_dataset,
)

SETUPS: dict[str, dict[str, Any]] = {
    "mlp": {},
    "leaky": {"network": {**MLP, "activation": "leaky_relu"}},
    "dcgan": {"network": DCGAN},
    "dcgan-spectral": {"network": {**DCGAN, "spectral_norm": True}},
    "mlp-spectral": {"network": {**MLP, "spectral_norm": True}},
    "wasserstein-clip": {"training": {"objective": "wasserstein", "n_critic": 2}},
    "rmsprop": {"training": {"objective": "wasserstein", "optimiser": "rmsprop"}},
    "wasserstein-penalty": {
        "training": {"objective": "wasserstein", "lipschitz": "gradient_penalty"}
    },
    "relativistic": {"training": {"objective": "relativistic", "skip_n_disc_steps": 1}},
    "relativistic-spectral": {
        "network": {**DCGAN, "spectral_norm": True},
        "training": {"objective": "relativistic"},
    },
}
every_setup = pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
every_method = pytest.mark.parametrize("name", METHODS)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def train_rounds(cell: Cell, *rounds: int) -> None:
    for cell.round in rounds:
        cell.train(cell.gan)


def remember(cell: Cell, weight: float) -> None:
    """Give the method's state a value that must survive."""
    assert isinstance(cell.state, CellularState)
    cell.state.mixture["0"] = weight


def through_a_file(parcel: Parcel) -> Parcel:
    """What a reader in another process gets: bytes and JSON."""
    tensors = safetensors.torch.load(safetensors.torch.save(dict(parcel.tensors)))
    meta = json.loads(json.dumps(dict(parcel.meta), allow_nan=False))
    return Parcel(parcel.cell, parcel.round, tensors, meta)


def steps_of(one: Learner) -> int:
    """How often its optimiser has stepped; all parameters agree."""
    counts = [value for name, value in one.moments().items() if ".step." in name]
    (steps,) = {int(count) for count in counts} or {0}
    return steps


# ---------------------------------------------------------------------------- randomness


@every_setup
def test_training_neither_uses_nor_touches_the_global_generators(setup: dict[str, Any]) -> None:
    results = []
    with torch.random.fork_rng(devices=[]):
        for seed in (1, 2):
            torch.manual_seed(seed)
            np.random.seed(seed)
            before, numpy_before = torch.get_rng_state(), str(np.random.get_state(legacy=False))
            cell = tiny_cell(tiny_config(**setup))
            train_rounds(cell, 1, 2)
            results.append(gan_tensors(cell.gan))
            assert torch.equal(torch.get_rng_state(), before)
            assert str(np.random.get_state(legacy=False)) == numpy_before
    assert same(*results)


def test_training_depends_on_seed_cell_and_round() -> None:
    def trained(seed: int = 3, index: int = 0, round: int = 1) -> dict[str, Tensor]:
        cell = tiny_cell(tiny_config(seed=seed), index=index)
        start = tiny_cell(tiny_config())
        cell.gan = start.gan  # the same networks, so that only the draws of the round differ
        train_rounds(cell, round)
        return gan_tensors(cell.gan)

    base = trained()
    assert same(base, trained())
    assert not same(base, trained(seed=4))
    assert not same(base, trained(index=1))
    assert not same(base, trained(round=2))


# ---------------------------------------------------------------------------- parcels


@every_setup
def test_going_on_from_a_parcel_equals_never_having_stopped(setup: dict[str, Any]) -> None:
    config = tiny_config(**setup)
    cell = tiny_cell(config)
    train_rounds(cell, 1, 2)
    cell.gan.generator.learning_rate = 0.0123
    remember(cell, 0.1 + 0.2)
    restored = tiny_cell(config)
    restored.restore(through_a_file(cell.parcel()))
    assert restored.round == 2
    assert restored.state == cell.state
    assert same(gan_tensors(restored.gan), gan_tensors(cell.gan))
    for one in (cell, restored):
        train_rounds(one, 3, 4)
    assert same(gan_tensors(restored.gan), gan_tensors(cell.gan))
    assert restored.gan.generator.learning_rate == 0.0123


@pytest.mark.slow
@every_method
@pytest.mark.parametrize("network", [MLP, DCGAN, {**DCGAN, "spectral_norm": True}])
def test_a_population_restored_from_parcels_equals_one_that_never_stopped(
    name: str, network: dict[str, Any]
) -> None:
    config = tiny_config(method={"name": name}, network=network)
    dataset = tiny_dataset()
    whole = Population(config, dataset, pixel_scorer(dataset))
    whole.play(), whole.play()
    again = Population(config, dataset, pixel_scorer(dataset))
    again.round = 2
    for cell, parcel in zip(again.cells, whole.parcels().values(), strict=True):
        cell.restore(through_a_file(parcel))
        again.comm.publish(cell.parcel())
    for left, right in zip(whole.play(), again.play(), strict=True):
        assert left.details == right.details
        assert left.score == right.score
    for left_parcel, right_parcel in zip(
        whole.parcels().values(), again.parcels().values(), strict=True
    ):
        assert same(left_parcel.tensors, right_parcel.tensors)
        assert left_parcel.meta == right_parcel.meta


@every_setup
def test_a_parcel_is_a_copy(setup: dict[str, Any]) -> None:
    cell = tiny_cell(tiny_config(**setup))
    train_rounds(cell, 1)
    remember(cell, 1.0)
    parcel = cell.parcel()
    tensors = {name: value.clone() for name, value in parcel.tensors.items()}
    meta = json.dumps(parcel.meta)
    train_rounds(cell, 2)
    remember(cell, 0.5)
    cell.gan.generator.learning_rate = 1.0
    assert same(parcel.tensors, tensors)
    assert json.dumps(parcel.meta) == meta
    assert not same(cell.parcel().tensors, tensors)
    assert not any(value.requires_grad for value in parcel.tensors.values())


def test_hosting_a_parcel_copies_it_too() -> None:
    """Parcels are handed out by reference, so several cells host the same one."""
    cell = tiny_cell(tiny_config(network=DCGAN))
    train_rounds(cell, 1)
    parcel = cell.parcel()
    tensors = {name: value.clone() for name, value in parcel.tensors.items()}
    own = gan_tensors(cell.gan)
    guest = cell.host(parcel)
    cell.train(guest)
    assert same(parcel.tensors, tensors)
    assert same(gan_tensors(cell.gan), own)
    assert not same(gan_tensors(guest), own)


def test_restoring_does_not_tie_the_cell_to_the_parcel() -> None:
    cell = tiny_cell()
    train_rounds(cell, 1)
    remember(cell, 1.0)
    parcel = cell.parcel()
    tensors = {name: value.clone() for name, value in parcel.tensors.items()}
    cell.restore(parcel)
    train_rounds(cell, 2)
    remember(cell, 0.5)
    assert same(parcel.tensors, tensors)
    assert parcel.meta["memory"] == {"mixture": {"0": 1.0}}


def test_a_parcel_holds_what_a_restart_needs_by_name() -> None:
    cell = tiny_cell(tiny_config(network=DCGAN))
    untrained = cell.parcel().tensors
    assert not [name for name in untrained if ".adam." in name]
    train_rounds(cell, 1)
    names = set(cell.parcel().tensors)
    assert "generator.network.2.running_mean" in names
    assert "generator.adam.exp_avg.0.weight" in names
    assert "discriminator.adam.step.0.weight" in names
    assert set(untrained) < names


def test_a_parcel_of_an_untrained_cell_takes_the_moments_away() -> None:
    cell, trained = tiny_cell(), tiny_cell()
    train_rounds(trained, 1)
    trained.restore(cell.parcel())
    assert steps_of(trained.gan.generator) == 0
    assert same(gan_tensors(trained.gan), gan_tensors(cell.gan))


def test_a_parcel_of_another_architecture_is_refused() -> None:
    parcel = tiny_cell(tiny_config(network={**MLP, "hidden": [9]})).parcel()
    with pytest.raises(RuntimeError, match="size mismatch"):
        tiny_cell().host(parcel)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("exp_avg", torch.zeros(1)),
        ("exp_avg_sq", torch.zeros(8, 4)[:, :3]),
        ("exp_avg", torch.zeros(8, 4, dtype=torch.float64)),
        ("step", torch.zeros(3)),
        ("step", None),
        ("exp_avg", None),
    ],
)
def test_moments_that_do_not_fit_are_refused(name: str, value: Tensor | None) -> None:
    """Adam's fused step reads as many numbers as there are weights, whoever owns them."""
    cell = tiny_cell()
    train_rounds(cell, 1)
    tensors = dict(cell.parcel().tensors)
    del tensors[f"generator.adam.{name}.0.weight"]
    if value is not None:
        tensors[f"generator.adam.{name}.0.weight"] = value
    with pytest.raises(ValueError, match=f"{name} of 0.weight does not fit"):
        cell.restore(Parcel(0, 1, tensors, cell.parcel().meta))


def test_rmsprop_divides_by_the_root_of_the_mean_square() -> None:
    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(layer.weight, 1.0)
    settings = TrainingSettings(optimiser="rmsprop", learning_rate=0.1)
    one = Learner(layer, settings)
    weight, square = 1.0, 0.0
    for _ in range(3):
        take_step(one, layer.weight.square().sum())
        gradient = 2 * weight
        square = 0.99 * square + 0.01 * gradient**2
        weight -= 0.1 * gradient / (square**0.5 + 1e-8)
    assert layer.weight.item() == pytest.approx(weight, rel=1e-5)
    assert set(one.moments()) == {"rmsprop.step.weight", "rmsprop.square_avg.weight"}


# ---------------------------------------------------------------------------- clones


@every_setup
def test_a_clone_is_equal_and_independent(setup: dict[str, Any]) -> None:
    cell = tiny_cell(tiny_config(**setup))
    train_rounds(cell, 1)
    original = gan_tensors(cell.gan)
    clone = cell.gan.clone()
    assert same(gan_tensors(clone), original)
    cell.round = 2
    cell.train(clone)
    assert same(gan_tensors(cell.gan), original)
    cell.train(cell.gan)
    assert same(gan_tensors(clone), gan_tensors(cell.gan)), "a clone trains as its parent would"
    clone.generator.learning_rate = 0.5
    clone.discriminator.objective = find_objective("minimax")
    assert cell.gan.generator.learning_rate == 0.01
    assert cell.gan.discriminator.objective.name == cell.config.training.objective


# ---------------------------------------------------------------------------- divergence


@every_method
def test_a_learning_rate_beyond_reason_is_survived_and_reported(name: str) -> None:
    network = {**MLP, "activation": "leaky_relu"}
    config = tiny_config(method={"name": name, **without_change(name)}, network=network)
    population = Population(config)
    cell = population.cells[1]
    train_rounds(cell, 0)
    for one in (cell.gan.generator, cell.gan.discriminator):
        one.learning_rate = 1e38
    before = gan_tensors(cell.gan)
    reports = population.play()
    assert [report.diverged for report in reports] == [False, True, False, False]
    assert same(gan_tensors(cell.gan), before)
    assert cell.gan.is_finite()
    # Once the cause is gone, the cell learns on.
    for one in (cell.gan.generator, cell.gan.discriminator):
        one.learning_rate = 0.01
    assert not population.play()[1].diverged
    assert cell.gan.is_finite()
    assert not same(gan_tensors(cell.gan), before)


def without_change(name: str) -> dict[str, Any]:
    off = {"selection": False, "mutation": False, "opponents": "partner"}
    return off if name == "cellular" else {}


@every_method
def test_a_loss_that_is_no_number_costs_the_round_only(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    population = Population(tiny_config(method={"name": name, **without_change(name)}))
    population.play()
    before = [gan_tensors(cell.gan) for cell in population.cells]
    with monkeypatch.context() as patch:
        patch.setattr(
            Heuristic, "generator_loss", lambda _self, fake, _real: fake.mean() * torch.nan
        )
        reports = population.play()
    assert all(report.diverged for report in reports)
    assert all(np.isnan(report.losses.generator) for report in reports)
    for cell, start in zip(population.cells, before, strict=True):
        assert cell.gan.is_finite()
        generator = {k: v for k, v in gan_tensors(cell.gan).items() if k.startswith("generator")}
        assert same(generator, {k: v for k, v in start.items() if k.startswith("generator")})
    assert not any(report.diverged for report in population.play())


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_one_bad_number_anywhere_counts(value: float) -> None:
    gan = tiny_cell(tiny_config(network=DCGAN)).gan
    assert gan.is_finite()
    for one in (gan.generator, gan.discriminator):
        for tensor in (one.network.state_dict()).values():
            if not tensor.is_floating_point():
                continue
            kept = tensor.view(-1)[-1].clone()
            tensor.view(-1)[-1] = value
            assert not one.is_finite()
            assert not gan.is_finite()
            tensor.view(-1)[-1] = kept
    assert gan.is_finite()


def test_a_network_whose_moments_overflowed_counts_as_diverged() -> None:
    """Divided by infinity, its steps are zero for ever, while its weights look healthy."""
    generator = tiny_cell().gan.generator
    noise, bias = torch.ones(2, 4), generator.network.get_parameter("2.bias")
    take_step(generator, 1e25 * generator.network(noise).sum())
    stuck = bias.detach().clone()
    assert bool(weights_of(generator).isfinite().all())
    assert not generator.is_finite()
    take_step(generator, generator.network(noise).square().sum())
    assert bias.equal(stuck)


@every_method
def test_batch_statistics_that_are_no_numbers_are_never_published(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They leave the weights finite, but nobody could load the network any more."""
    train = Cell.train

    def poison(cell: Cell, gan: Gan, rivals: Rivals = Rivals()) -> Losses:  # noqa: B008
        losses = train(cell, gan, rivals)
        gan.generator.network.get_buffer("2.running_var")[0] = torch.inf
        return losses

    monkeypatch.setattr(Cell, "train", poison)
    population = Population(tiny_config(method={"name": name}, network=DCGAN))
    assert all(report.diverged for report in population.play())
    for parcel in population.parcels().values():
        assert all(bool(value.isfinite().all()) for value in parcel.tensors.values())


# ---------------------------------------------------------------------------- how often


@pytest.mark.parametrize(
    ("training", "generator", "discriminator"),
    [
        ({}, 4, 4),
        ({"skip_n_disc_steps": 1}, 4, 2),
        ({"n_critic": 2}, 2, 4),
        ({"n_critic": 3}, 1, 4),
        ({"batches_per_round": 2}, 2, 2),
        ({"batches_per_round": 10, "n_critic": 5, "objective": "wasserstein"}, 2, 10),
        ({"batch_size": 24}, 1, 1),
        ({"batch_size": 7}, 3, 3),
    ],
)
def test_each_network_trains_as_often_as_asked(
    training: dict[str, Any], generator: int, discriminator: int
) -> None:
    cell = tiny_cell(tiny_config(training=training))
    for round in (1, 2):
        cell.round = round
        losses = cell.train(cell.gan)
        assert steps_of(cell.gan.generator) == round * generator
        assert steps_of(cell.gan.discriminator) == round * discriminator
    batches = max(generator, discriminator)
    assert losses.batches == batches
    assert losses.images == batches * cell.config.training.batch_size


@pytest.mark.parametrize(
    ("skip", "steps"), [(0, 12), (1, 6), (2, 4), (4, 3), (11, 1), (99, 1)], ids=str
)
@pytest.mark.parametrize("rounds", [1, 3, 4, 12])
def test_the_discriminator_sits_out_the_same_batches_whatever_the_rounds(
    rounds: int, skip: int, steps: int
) -> None:
    training = {"batches_per_round": 12 // rounds, "skip_n_disc_steps": skip}
    cell = tiny_cell(tiny_config(training=training))
    for cell.round in range(1, rounds + 1):
        cell.train(cell.gan)
    assert steps_of(cell.gan.discriminator) == steps
    assert steps_of(cell.gan.generator) == 12


def test_losses_are_the_means_over_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = tiny_cell(tiny_config(training={"skip_n_disc_steps": 1}))
    seen: dict[bool, list[float]] = {True: [], False: []}

    def spied(role: str) -> None:
        loss = getattr(Game, f"{role}_loss")

        def spy(game: Game, batch: Batch) -> Tensor:
            found: Tensor = loss(game, batch)
            seen[role == "generator"].append(float(found.detach()))
            return found

        monkeypatch.setattr(Game, f"{role}_loss", spy)

    spied("generator")
    spied("discriminator")
    losses = cell.train(cell.gan)
    assert (len(seen[True]), len(seen[False])) == (4, 2)
    assert losses.generator == pytest.approx(np.mean(seen[True]))
    assert losses.discriminator == pytest.approx(np.mean(seen[False]))


def test_progress_is_reported_every_few_batches() -> None:
    cell = tiny_cell(tiny_config(training={"batches_per_round": 45}))
    ticks: list[tuple[int, int]] = []
    cell.tick = lambda batch, batches: ticks.append((batch, batches))
    train_rounds(cell, 1)
    assert ticks
    assert all(0 < batch <= batches == 45 for batch, batches in ticks)
    assert ticks == sorted(ticks)


# ---------------------------------------------------------------------------- data


def items_trained_on(cell: Cell) -> list[list[int]]:
    """Indices of the real items the discriminator saw, step by step."""
    known = {item.numpy().tobytes(): number for number, item in enumerate(cell.dataset.items[:])}
    seen: list[list[int]] = []
    loss = Game.discriminator_loss

    def spy(self: Game, batch: Batch) -> Tensor:
        seen.append([known[item.numpy().tobytes()] for item in batch.real])
        return loss(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Game, "discriminator_loss", spy)
        cell.train(cell.gan)
    return seen


def flat(batches: Sequence[Sequence[int]]) -> list[int]:
    return [item for batch in batches for item in batch]


def test_every_item_is_used_exactly_once_in_an_epoch() -> None:
    cell = tiny_cell()
    first = items_trained_on(cell)
    assert sorted(flat(first)) == list(range(24))
    assert flat(first) != list(range(24))
    cell.round = 2
    second = items_trained_on(cell)
    assert sorted(flat(second)) == list(range(24))
    assert first != second


def test_a_remainder_is_left_out_but_not_always_the_same() -> None:
    cell = tiny_cell(tiny_config(training={"batch_size": 7}))
    left_out = set()
    for cell.round in range(1, 9):
        seen = items_trained_on(cell)
        assert [len(batch) for batch in seen] == [7, 7, 7]
        used = set(flat(seen))
        assert len(used) == 21
        left_out |= set(range(24)) - used
    assert len(left_out) > 10


def test_a_round_shorter_than_an_epoch_is_its_beginning() -> None:
    short = tiny_cell(tiny_config(training={"batches_per_round": 2}))
    whole = tiny_cell()
    assert items_trained_on(short) == items_trained_on(whole)[:2]


def test_a_round_longer_than_an_epoch_is_several() -> None:
    cell = tiny_cell(tiny_config(training={"batches_per_round": 10}))
    seen = items_trained_on(cell)
    assert [len(batch) for batch in seen] == [6] * 10
    epochs = seen[:4], seen[4:8]
    for epoch in epochs:
        assert sorted(flat(epoch)) == list(range(24))
    assert epochs[0] != epochs[1]
    assert len(set(flat(seen[8:]))) == 12


@pytest.mark.parametrize("overlap", [True, False])
def test_a_cell_trains_on_its_share_only(overlap: bool) -> None:
    data = {"view": "share", "share": 0.25, "overlap": overlap}
    population = Population(tiny_config(data=data))
    shares = []
    for cell in population.cells:
        cell.round = 1
        seen = flat(items_trained_on(cell))
        assert sorted(seen) == sorted(cell.view.tolist())
        assert len(seen) == 6
        shares.append(set(seen))
    assert len({frozenset(share) for share in shares}) == 4
    assert (len(set.union(*shares)) == 24) == (not overlap)


def test_a_cell_trains_on_its_label_only() -> None:
    dataset = tiny_dataset(labels=True)
    cell = tiny_cell(tiny_config(data={"view": "label", "label": 1}), dataset)
    seen = flat(items_trained_on(cell))
    assert sorted(seen) == list(range(1, 24, 2))
    batch, labels = cell.real_batch("evaluation-batch")
    assert labels is None  # these networks are not conditioned on any
    odd = {item.numpy().tobytes() for item in dataset.items[1::2]}
    assert all(item.numpy().tobytes() in odd for item in batch)


def test_an_evaluation_batch_holds_no_item_twice() -> None:
    cell = tiny_cell(tiny_config(training={"batch_size": 24}))
    batch, _ = cell.real_batch("evaluation-batch")
    assert len({item.numpy().tobytes() for item in batch}) == 24


# ---------------------------------------------------------------------------- objectives


def weights_of(one: Learner) -> Tensor:
    return torch.cat([value.detach().flatten() for value in one.network.parameters()])


def trained_critic(**training: Any) -> Tensor:
    cell = tiny_cell(tiny_config(training=training))
    train_rounds(cell, 1)
    assert cell.gan.is_finite()
    return weights_of(cell.gan.discriminator)


def test_a_clipped_critic_stays_within_its_bounds() -> None:
    weights = trained_critic(objective="wasserstein", clip=0.02)
    assert float(weights.abs().max()) == pytest.approx(0.02)


def test_clipping_is_for_wasserstein_with_clip_only() -> None:
    penalised = trained_critic(objective="wasserstein", lipschitz="gradient_penalty", clip=0.02)
    assert float(penalised.abs().max()) > 0.1
    assert float(trained_critic(objective="heuristic", clip=0.02).abs().max()) > 0.1


def test_the_generator_is_never_clipped() -> None:
    cell = tiny_cell(tiny_config(training={"objective": "wasserstein"}))
    train_rounds(cell, 1)
    assert float(weights_of(cell.gan.generator).abs().max()) > 0.1


@pytest.mark.parametrize(
    ("training", "weight"),
    [
        ({"objective": "wasserstein", "lipschitz": "gradient_penalty"}, "penalty"),
        ({"objective": "relativistic"}, "gamma"),
    ],
)
def test_a_penalty_matters_by_its_weight(training: dict[str, Any], weight: str) -> None:
    without = trained_critic(**training, **{weight: 0.0})
    little = trained_critic(**training, **{weight: 1.0})
    much = trained_critic(**training, **{weight: 100.0})
    assert not torch.allclose(without, little, atol=1e-4)
    assert not torch.allclose(little, much, atol=1e-4)


def test_penalties_flatten_the_discriminator() -> None:
    def slope(**training: Any) -> float:
        cell = tiny_cell(
            tiny_config(training={**training, "batches_per_round": 60, "learning_rate": 0.02})
        )
        train_rounds(cell, 1)
        items = cell.dataset.items[:].clone().requires_grad_()
        logits = cell.gan.discriminator.network(items)
        (gradient,) = torch.autograd.grad(logits.sum(), items)
        return float(gradient.flatten(1).norm(dim=1).mean())

    plain = slope(objective="relativistic", gamma=0.0)
    assert slope(objective="relativistic", gamma=10.0) < 0.5 * plain
    critic = slope(objective="wasserstein", lipschitz="gradient_penalty", penalty=100.0)
    assert critic == pytest.approx(1, abs=0.35)


def test_a_discriminator_learns_to_tell_real_from_made() -> None:
    """The signs, seen from outside: train the discriminator alone, then the generator alone."""
    for objective in ("minimax", "heuristic", "least_squares", "relativistic", "wasserstein"):
        training = {"objective": objective, "batches_per_round": 40, "n_critic": 40, "clip": 0.1}
        cell = tiny_cell(tiny_config(training=training))
        train_rounds(cell, 1)
        network = cell.gan.discriminator.network.eval()
        with torch.no_grad():
            real = network(cell.dataset.items[:]).mean()
            fake = network(cell.images(50, "x")).mean()
        assert real > fake + 0.1, objective


def test_a_generator_learns_to_please_its_discriminator() -> None:
    for loss in ("minimax", "heuristic", "least_squares", "relativistic"):
        cell = tiny_cell(tiny_config(training={"skip_n_disc_steps": 99, "batches_per_round": 40}))
        cell.gan.generator.objective = find_objective(loss)
        network = cell.gan.discriminator.network
        start = network(cell.images(50, "x")).mean()
        train_rounds(cell, 1)
        assert network(cell.images(50, "x")).mean() > start + 0.1, loss


# ---------------------------------------------------------------------------- opponents


def test_opponents_are_drawn_from_partner_and_rivals() -> None:
    cell = tiny_cell(tiny_config(training={"batches_per_round": 40}))
    others = [tiny_cell(index=index).gan.clone() for index in (1, 2)]
    counts = dict.fromkeys(range(6), 0)

    def count(place: int) -> Any:
        def watch(*_: Any) -> None:
            counts[place] += 1

        return watch

    gans = [cell.gan, *others]
    for place, gan in enumerate(gans):
        gan.generator.network.register_forward_hook(count(place))
        gan.discriminator.network.register_forward_hook(count(place + 3))
    cell.train(
        cell.gan,
        Rivals(
            [gan.generator.network.eval() for gan in others],
            [gan.discriminator.network.eval() for gan in others],
        ),
    )
    # Of 40 batches each opponent gets about a third; the trained two also play in every own step.
    made_for_discriminator = [counts[0] - 40, counts[1], counts[2]]
    rated_generator = [counts[3] - 40, counts[4], counts[5]]
    for drawn in (made_for_discriminator, rated_generator):
        assert sum(drawn) == 40
        assert min(drawn) >= 5


def test_rivals_with_batch_norm_do_not_change_while_they_play() -> None:
    config = tiny_config(network=DCGAN)
    cell, other = tiny_cell(config), tiny_cell(config, index=1)
    before = gan_tensors(other.gan)
    cell.train(
        cell.gan,
        Rivals([other.gan.generator.network.eval()], [other.gan.discriminator.network.eval()]),
    )
    assert same(gan_tensors(other.gan), before)


# ---------------------------------------------------------------------------- evaluation


def test_evaluation_changes_nothing() -> None:
    dataset = tiny_dataset()
    config = tiny_config(network=DCGAN)
    cell = Population(config, dataset, pixel_scorer(dataset)).cells[0]
    before = gan_tensors(cell.gan)
    found = [cell.assess() for _ in range(2)]
    assert same(gan_tensors(cell.gan), before)
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].score == found[1].score


def test_images_do_not_depend_on_the_batch_they_are_made_in() -> None:
    """A generator that samples is in eval mode, also right after training."""
    config = tiny_config(network=DCGAN)
    cell = tiny_cell(config)
    train_rounds(cell, 1)
    assert cell.gan.generator.network.training
    alone = cell.gan.generator.clone().network.eval()
    latent = draw_noise(cell.network, 20, cell.streams.tensors("x"))
    with torch.no_grad():
        one_by_one = torch.cat([alone(one[None]) for one in latent])
    torch.testing.assert_close(cell.images(20, "x"), one_by_one)


def test_without_a_scorer_there_is_no_assessment() -> None:
    cell = tiny_cell()
    assert cell.assess() is None
    assert not [name for name in cell.parcel().tensors if name.startswith("assessment")]


def test_an_assessment_travels_with_its_parcel() -> None:
    dataset = tiny_dataset()
    population = Population(tiny_config(), dataset, pixel_scorer(dataset))
    cell, other = population.cells[:2]
    assert cell.assessment is not None
    other.restore(through_a_file(cell.parcel()))
    assert other.assessment is not None
    assert other.assessment.score == cell.assessment.score
    assert same(other.assessment.tensors(), cell.assessment.tensors())


# ---------------------------------------------------------------------------- noise, clipping, cost


def test_input_noise_reaches_all_a_discriminator_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(
        rounds=4, training={"input_noise": [[0.5, 0.3]], "batches_per_round": 40, "batch_size": 24}
    )
    cell, plain = tiny_cell(config), tiny_cell(tiny_config(rounds=4))
    clean = tiny_dataset().items[:].sort(0).values
    for cell.round, sigma in ((1, 0.3), (2, 0.3), (3, 0.0), (4, 0.0)):
        seen: list[Tensor] = []
        network = cell.gan.discriminator.network
        hook = network.register_forward_pre_hook(
            lambda _, inputs, seen=seen: seen.append(inputs[0].detach().clone())
        )
        cell.train(cell.gan.clone())  # a clone keeps the hook
        hook.remove()
        real = torch.stack([both[:24].sort(0).values for both in seen if len(both) == 48])
        assert len(real) == 40
        if sigma == 0:
            assert (real == clean).all()
        else:
            spread = real.mean((1, 2, 3, 4)) - clean.mean()
            assert spread.abs().max() < 0.1
            assert real.var().item() == pytest.approx(clean.var().item() + sigma**2, rel=0.05)
    assert plain.training.noise_in(1, 4) == 0


def test_a_generators_items_are_blurred_too() -> None:
    noisy = InputNoise(0.3, torch.Generator().manual_seed(0))
    items = torch.zeros(50, 1, 8, 8, requires_grad=True)
    blurred = noisy(items)
    assert blurred.std().item() == pytest.approx(0.3, rel=0.05)
    assert not torch.equal(blurred, noisy(items))
    (gradient,) = torch.autograd.grad(blurred.sum(), items)
    assert (gradient == 1).all()
    assert InputNoise(0.0, torch.Generator())(items) is items


@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_gradients_are_clipped_by_their_global_norm(clip: float) -> None:
    free = tiny_cell().gan.generator
    clipped = tiny_cell(tiny_config(training={"gradient_clip": clip})).gan.generator
    for one in (free, clipped, clipped.clone()):
        noise = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
        take_step(one, one.network(noise).square().mean())
        norm = torch.cat([p.grad.flatten() for p in one.network.parameters()]).norm().item()  # type: ignore[union-attr]
        if one is free:
            expected = norm
        else:
            assert norm == pytest.approx(min(clip, expected), rel=1e-4)


def test_costs_are_measured_on_seen_and_held_out_items_with_the_same_fakes() -> None:
    dataset = tiny_dataset(40).hold_out(16, seed=0)
    cell = tiny_cell(dataset=dataset)
    cell.train(cell.gan)
    before = gan_tensors(cell.gan)
    costs = cell.discriminator_costs()
    assert same(gan_tensors(cell.gan), before)
    assert cell.discriminator_costs() == costs
    network = cell.gan.discriminator.network.eval()
    fake = network(cell.images(16, "cost-noise"))
    seen = cell.streams.choices("cost-train").choice(24, 16, replace=False)
    assert dataset.validation is not None
    samples = {
        "train": dataset.items[torch.from_numpy(seen)],
        "validation": dataset.validation[:],
    }
    for name, items in samples.items():
        real = network(items)
        expected = 0.5 * (
            -torch.sigmoid(real).log().mean() - (1 - torch.sigmoid(fake)).log().mean()
        )
        assert costs[name] == pytest.approx(expected.item(), rel=1e-5)
    assert tiny_cell().discriminator_costs() == {}


@every_method
def test_costs_are_in_the_report_where_items_are_held_out(name: str) -> None:
    dataset = tiny_dataset(40).hold_out(16, seed=0)
    for report in Population(tiny_config(method={"name": name}), dataset).play():
        assert set(report.details["cost"]) == {"train", "validation"}
    for report in Population(tiny_config(method={"name": name})).play():
        assert "cost" not in report.details


def test_no_gradients_are_kept_between_rounds() -> None:
    cell = tiny_cell()
    cell.train(cell.gan)
    for _, learner in cell.gan.roles:
        assert all(parameter.grad is None for parameter in learner.network.parameters())
