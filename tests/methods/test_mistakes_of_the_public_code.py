"""One test, at least, for each mistake found in the public code of the original system.

Left out: "one dead client and no results at all", which waits for engines with several processes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import remuda
from remuda.gan.cell import Cell
from remuda.gan.game import Losses, Rivals
from remuda.gan.learner import Gan, Learner
from remuda.gan.objectives import find_objective
from remuda.gan.optimisers import Adam
from remuda.methods.cellular import carried_weights, mutated_weights
from remuda.parallel import training
from remuda.runs.store import RunFolder
from tests.tiny import (
    DCGAN,
    Population,
    gan_tensors,
    pixel_scorer,
    same,
    take_step,
    tiny_cell,
    tiny_config,
    tiny_dataset,
)
from tests.tiny_runs import save_checkpoint

MUSTANGS = ["minimax", "heuristic", "least_squares"]


def comma(**settings: Any) -> dict[str, Any]:
    return {"name": "cellular", "replacement": "comma", **settings}


# ---------------------------------------------------------------------------- neighbours


def test_neighbour_index_is_not_transposed() -> None:
    """W, N, E, S as they lie on paper; a square grid alone would hide half of the mistake."""
    rectangle = Population(tiny_config(grid={"shape": "3x4"})).method
    #  0  1  2  3
    #  4  5  6  7
    #  8  9 10 11
    assert rectangle.peers(5, 1) == (4, 1, 6, 9)
    assert rectangle.peers(3, 1) == (2, 11, 0, 7)
    assert rectangle.peers(8, 1) == (11, 4, 9, 0)
    square = Population(tiny_config(grid={"shape": "3x3"})).method
    #  0 1 2
    #  3 4 5
    #  6 7 8
    assert [set(square.peers(cell, 1)) for cell in range(9)] == [
        {1, 2, 3, 6},
        {0, 2, 4, 7},
        {0, 1, 5, 8},
        {0, 4, 5, 6},
        {1, 3, 5, 7},
        {2, 3, 4, 8},
        {0, 3, 7, 8},
        {1, 4, 6, 8},
        {2, 5, 6, 7},
    ]


# ---------------------------------------------------------------------------- learning rate


def stepped(one: Learner, inputs: Tensor) -> dict[str, Tensor]:
    """How far one step on the same loss moves each parameter."""
    before = {name: value.detach().clone() for name, value in one.network.named_parameters()}
    take_step(one, one.network(inputs).square().mean())
    return {name: value.detach() - before[name] for name, value in one.network.named_parameters()}


def test_mutated_learning_rate_is_not_overwritten_by_the_optimiser_state() -> None:
    cell = tiny_cell(tiny_config(training={"learning_rate": 1e-3}))
    cell.train(cell.gan)  # so that there is a state to restore
    noise = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    fast, slow = cell.gan.generator.clone(), cell.gan.generator.clone()
    fast.learning_rate = 10 * slow.learning_rate
    fast = fast.clone()  # the copy must not fall back either
    assert (fast.learning_rate, slow.learning_rate) == (1e-2, 1e-3)
    far, near = stepped(fast, noise), stepped(slow, noise)
    for name in near:
        torch.testing.assert_close(far[name], 10 * near[name], rtol=1e-3, atol=1e-6)
    assert all(bool((step != 0).any()) for step in near.values())


def test_mutated_learning_rate_travels_in_a_parcel() -> None:
    cell = tiny_cell()
    cell.train(cell.gan)
    cell.gan.generator.learning_rate = 0.123
    parcel = cell.parcel()
    for guest in (cell.host(parcel), tiny_cell(index=2).host(parcel)):
        assert guest.generator.learning_rate == 0.123
        assert guest.discriminator.learning_rate == 0.01


def test_mutated_learning_rate_is_the_one_the_offspring_trains_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[list[float]] = []
    step = Adam.step

    def spy(optimiser: Adam, gradients: Sequence[torch.Tensor], rate: float) -> None:
        used[-1].append(rate)
        step(optimiser, gradients, rate)

    monkeypatch.setattr(Adam, "step", spy)
    config = tiny_config(method=comma(mutation_probability=1.0), grid={"shape": "1x2"})
    population = Population(config)
    for _ in range(3):
        used.append([])
        reports = population.play()
        mutations = [report.details["mutations"] for report in reports]
        wanted = {rate for done in mutations for _, rate in done.values()}
        assert len(wanted) == 4
        assert set(used[-1]) == wanted
        assert {rate for cell in population.cells for rate in rates(cell.gan)} == wanted


def rates(gan: Gan) -> tuple[float, float]:
    return gan.generator.learning_rate, gan.discriminator.learning_rate


def test_a_learning_rate_stays_positive_however_it_mutates() -> None:
    method = comma(mutation_probability=1.0, mutation_rate=1.0)
    population = Population(tiny_config(method=method))
    for _ in range(4):
        population.play()
        assert all(rate > 0 for cell in population.cells for rate in rates(cell.gan))


# ---------------------------------------------------------------------------- loss gene


@pytest.mark.slow
def test_loss_gene_is_each_networks_own_and_changes() -> None:
    population = Population(tiny_config(method=comma(losses=MUSTANGS)))
    rounds = [[report.genes.loss for report in population.play()] for _ in range(6)]
    assert any(len(set(genes)) > 1 for genes in rounds), "cells share one gene"
    for cell in range(4):
        assert len({genes[cell] for genes in rounds}) > 1, "the gene never changes"
    assert {gene for genes in rounds for gene in genes} == set(MUSTANGS)


def test_loss_gene_of_a_clone_leaves_its_parent_alone() -> None:
    parent = tiny_cell().gan
    child = parent.clone()
    child.generator.objective = find_objective("least_squares")
    assert parent.generator.objective.name == child.discriminator.objective.name == "heuristic"


def test_loss_gene_decides_the_gradient() -> None:
    trained = {}
    for loss in [*MUSTANGS, "relativistic"]:
        cell = tiny_cell(tiny_config(training={"batches_per_round": 1}))
        cell.gan.generator.objective = find_objective(loss)
        cell.train(cell.gan)
        trained[loss] = gan_tensors(cell.gan)
    moments = [found["generator.adam.exp_avg.0.weight"] for found in trained.values()]
    for place, one in enumerate(moments):
        for other in moments[:place]:
            assert not torch.allclose(one, other, rtol=1e-2, atol=0)
    # The one discriminator trains under its own objective.
    discriminators = [
        {name: value for name, value in found.items() if name.startswith("discriminator")}
        for found in trained.values()
    ]
    assert all(same(discriminators[0], one) for one in discriminators)


def test_fitness_is_compared_under_one_loss_whatever_a_learner_trains_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Genes that differ, weights that do not: fitness must not see the gene."""
    monkeypatch.setattr(Cell, "train", lambda *_: Losses(0.0, 0.0, 0, 0))
    found = []
    for loss in MUSTANGS:
        population = Population(tiny_config(method={"name": "cellular", "mutation": False}))
        population.comm.forget(1)
        for cell in population.cells:
            cell.gan.generator.objective = find_objective(loss)
            population.comm.publish(cell.parcel())
        found.append([report.details for report in population.play()])
    assert found[0] == found[1] == found[2]


# ---------------------------------------------------------------------------- seeds


def test_cells_are_not_seeded_alike() -> None:
    cells = Population(tiny_config()).cells
    start = [cell.parcel().tensors for cell in cells]
    orders = [cell._batches().tolist() for cell in cells]
    batches = [cell.real_batch("x")[0] for cell in cells]
    noises = [cell.noise_batch("x") for cell in cells]
    for place in range(1, 4):
        for before in range(place):
            assert not any(
                start[place][name].equal(value)
                for name, value in start[before].items()
                if "network" in name
            )
            assert orders[place] != orders[before]
            assert not batches[place].equal(batches[before])
            assert not noises[place].equal(noises[before])


def test_rounds_do_not_repeat_their_draws() -> None:
    cell = tiny_cell()
    draws = []
    for cell.round in (1, 2, 3):
        draws.append((cell._batches().tolist(), cell.noise_batch("x").tolist()))
    assert draws[0] != draws[1] != draws[2] != draws[0]


@pytest.mark.parametrize("network", [{"spectral_norm": True}, DCGAN])
def test_initial_weights_depend_on_seed_and_cell_and_on_nothing_else(
    network: dict[str, Any],
) -> None:
    config = tiny_config(network=network)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first = tiny_cell(config, index=2).parcel().tensors
        torch.manual_seed(2)
        np.random.seed(2)
        tiny_cell(config, index=0)  # what was built before must not matter
        again = tiny_cell(config, index=2).parcel().tensors
    assert same(first, again)
    reseeded = tiny_config(network=network, seed=99)
    other = tiny_cell(reseeded, index=2).parcel().tensors
    name = "generator.network.0.weight"
    assert not other[name].equal(first[name])


# ---------------------------------------------------------------------------- optimiser


def steps_of(one: Learner) -> set[int]:
    return {int(count) for name, count in one.moments().items() if ".step." in name}


def test_optimiser_is_not_rebuilt_between_steps_rounds_clones_and_parcels() -> None:
    population = Population(tiny_config(method=comma(selection=False)))
    for round in range(1, 4):
        population.play()
        for cell in population.cells:
            assert steps_of(cell.gan.generator) == {4 * round}
            assert steps_of(cell.gan.discriminator) == {4 * round}
    cell = population.cells[0]
    for copied in (
        cell.gan.clone(),
        cell.host(cell.parcel()),
        population.cells[1].host(cell.parcel()),
    ):
        assert same(gan_tensors(copied), gan_tensors(cell.gan))
        assert steps_of(copied.generator) == {12}


def test_one_optimiser_per_network_and_clone_not_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    make = Adam.__init__

    def spy(optimiser: Adam, *args: Any, **named: Any) -> None:
        made.append(optimiser)
        make(optimiser, *args, **named)

    cell = tiny_cell(tiny_config(training={"batches_per_round": 20}))
    monkeypatch.setattr(Adam, "__init__", spy)
    cell.train(cell.gan)
    assert not made


def test_moments_are_the_running_means_over_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds of one batch each: the first moment must remember the first gradient."""
    step = Learner.descend
    gradients: dict[Learner, Tensor] = {}

    def spy(one: Learner, found: Sequence[Tensor]) -> None:
        step(one, found)
        gradients[one] = found[0].clone()  # of 0.weight, in a generator

    monkeypatch.setattr(Learner, "descend", spy)
    config = tiny_config(training={"batches_per_round": 1}, method={"name": "independent"})
    population = Population(config)
    population.play()
    first = population.parcels()[0].tensors["generator.adam.exp_avg.0.weight"]
    population.play()
    second = population.parcels()[0].tensors["generator.adam.exp_avg.0.weight"]
    last = gradients[population.cells[0].gan.generator]
    torch.testing.assert_close(second, 0.5 * first + 0.5 * last)


# ---------------------------------------------------------------------------- gradients


def test_discriminator_step_does_not_propagate_through_the_generator() -> None:
    cell = tiny_cell()
    needed: list[bool] = []

    def watch(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        needed.append(inputs[0].requires_grad)

    cell.gan.discriminator.network.register_forward_pre_hook(watch)
    cell.train(cell.gan)
    # Batch by batch: the discriminator's own step on bare images, then the generator's.
    assert needed == [False, True] * 4


@pytest.mark.parametrize("objective", ["heuristic", "relativistic", "wasserstein"])
def test_a_step_of_one_network_leaves_the_other_alone(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = tiny_cell(tiny_config(training={"objective": objective}))
    gan = cell.gan
    step = Learner.descend
    seen: list[str] = []

    def spy(one: Learner, gradients: Sequence[Tensor]) -> None:
        seen.append("generator" if one is gan.generator else "discriminator")
        other = gan.discriminator if one is gan.generator else gan.generator
        before = {name: value.clone() for name, value in other.tensors().items()}
        mine = {name: value.clone() for name, value in one.tensors().items()}
        held = [parameter.grad for parameter in other.network.parameters()]
        step(one, gradients)
        assert same(before, other.tensors())
        assert not same(mine, one.tensors())
        after = [parameter.grad for parameter in other.network.parameters()]
        assert all(left is right for left, right in zip(held, after, strict=True))

    monkeypatch.setattr(Learner, "descend", spy)
    cell.train(gan)
    assert seen == ["discriminator", "generator"] * 4


def test_rivals_are_not_trained() -> None:
    cell, rival = tiny_cell(), tiny_cell(index=1)
    before = gan_tensors(rival.gan)
    opposed = Rivals([rival.gan.generator.network.eval()], [rival.gan.discriminator.network.eval()])
    cell.train(cell.gan, opposed)
    assert same(before, gan_tensors(rival.gan))
    assert all(p.grad is None for p in rival.gan.generator.network.parameters())
    assert all(p.grad is None for p in rival.gan.discriminator.network.parameters())


# ---------------------------------------------------------------------------- speed


def test_images_to_score_are_not_generated_one_per_forward() -> None:
    dataset = tiny_dataset()
    config = tiny_config(score={"samples": 500})
    cell = Population(config, dataset, pixel_scorer(dataset)).cells[0]
    sizes: list[int] = []

    def watch(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        sizes.append(len(inputs[0]))

    cell.gan.generator.network.register_forward_pre_hook(watch)
    cell.assess()
    assert sum(sizes) == 500
    assert len(sizes) <= 5


class Gathers(TorchFunctionMode):
    """Notes every use of the items of a data set, and how many of them it yields."""

    def __init__(self, items: Tensor) -> None:
        super().__init__()
        self.items = items
        self.taken: list[int] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if args and args[0] is self.items and isinstance(result, Tensor):
            self.taken.append(len(result))
        return result


def test_data_are_gathered_a_batch_at_a_time_not_an_image() -> None:
    cell = tiny_cell()
    with Gathers(cell.dataset.items.stored) as gathers:
        losses = cell.train(cell.gan)
    assert gathers.taken == [6] * 4
    assert (losses.batches, losses.images) == (4, 24)


def test_no_data_loader_anywhere() -> None:
    sources = sorted(Path(str(remuda.__file__)).parent.rglob("*.py"))
    assert len(sources) > 20
    assert not [path.name for path in sources if "DataLoader" in path.read_text("utf-8")]


def test_a_parcel_is_raw_tensors_no_larger_than_weights_and_two_moments(tmp_path: Path) -> None:
    config = tiny_config(network={"family": "mlp", "latent": 64, "hidden": [64, 64]})
    cell = tiny_cell(config)
    cell.train(cell.gan)
    parcel = cell.parcel()
    sizes = {name: value.nbytes for name, value in parcel.tensors.items()}
    assert all(isinstance(value, Tensor) for value in parcel.tensors.values())
    weights = sum(size for name, size in sizes.items() if ".network." in name)
    assert weights > 50_000
    assert sum(sizes.values()) <= 3 * weights + 8 * len(sizes)
    assert len(json.dumps(dict(parcel.meta))) < 1000
    save_checkpoint(RunFolder(tmp_path), 1, {0: parcel}, None)
    (file,) = tmp_path.rglob("*.safetensors")
    assert file.stat().st_size <= sum(sizes.values()) + 200 * len(sizes)


# ---------------------------------------------------------------------------- checkpoints


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [{"name": "cellular", "losses": MUSTANGS}, {"name": "independent"}]
)
def test_checkpoints_hold_the_weights_of_after_the_round(
    method: dict[str, Any], tmp_path: Path
) -> None:
    run, unscored = {"dir": str(tmp_path / "run"), "keep_last": 9}, {"extractor": "none"}
    config = tiny_config(method=method, run=run, score=unscored)
    dataset = tiny_dataset()
    training.train(config, dataset=dataset)
    folder = RunFolder.open(tmp_path / "run")
    population = Population(config, dataset)
    found = folder.checkpoints()
    assert [checkpoint.round for checkpoint in found] == [1, 2, 3]
    for checkpoint in found:
        before = population.parcels()
        population.play()
        saved = folder.load_checkpoint(checkpoint)
        for cell, parcel in population.parcels().items():
            assert same(saved[cell].tensors, parcel.tensors)
            assert saved[cell].meta == parcel.meta
            assert saved[cell].round == parcel.round == checkpoint.round
        assert not same(saved[0].tensors, before[0].tensors)
    (last,) = [checkpoint for checkpoint in found if checkpoint.round == config.rounds]
    model = safetensors.torch.load_file(tmp_path / "run" / "ensemble" / "model.safetensors")
    members = json.loads((tmp_path / "run" / "ensemble" / "config.json").read_text())["members"]
    saved = folder.load_checkpoint(last)
    for place, member in enumerate(members):
        for name, value in saved[member["cell"]].tensors.items():
            if name.startswith("generator.network."):
                assert model[f"{place}.{name.removeprefix('generator.network.')}"].equal(value)


# ---------------------------------------------------------------------------- mixture


@pytest.mark.slow
def test_mixture_weights_do_not_survive_into_the_next_experiment() -> None:
    dataset = tiny_dataset()
    config = tiny_config(method={"name": "cellular", "mixture_scale": 0.2})

    def experiment() -> tuple[list[Any], dict[int, Any]]:
        population = Population(config, dataset, pixel_scorer(dataset))
        assert all(cell.state.to_json() == {} for cell in population.cells)
        details = [report.details for _ in range(4) for report in population.play()]
        return details, population.parcels()

    details, parcels = experiment()
    assert any(entry["mixture"]["changed"] for entry in details)
    details_again, parcels_again = experiment()
    assert details_again == details
    for cell, parcel in parcels.items():
        assert same(parcel.tensors, parcels_again[cell].tensors)
        assert parcel.meta == parcels_again[cell].meta


def test_mixture_weights_start_uniform() -> None:
    config = tiny_config(method={"name": "cellular", "mixture_scale": 0.0})
    dataset = tiny_dataset()
    population = Population(config, dataset, pixel_scorer(dataset))
    mixture = population.method.ensemble(population.parcels(), population.cells[0].scorer)
    assert list(mixture.weights.values()) == pytest.approx([1 / 3] * 3)
    for report in population.play():
        assert report.details["mixture"]["weights"].values() == pytest.approx([1 / 3] * 3)


cells = st.lists(st.integers(0, 20), min_size=1, max_size=9, unique=True)
shares = st.floats(0, 1, allow_subnormal=False)


@given(
    old=st.dictionaries(st.integers(0, 20).map(str), shares, max_size=9),
    members=cells,
    scale=st.floats(0, 10),
    seed=st.integers(0, 2**32),
)
def test_mixture_sums_to_one_after_any_loss(
    old: dict[str, float], members: list[int], scale: float, seed: int
) -> None:
    carried = carried_weights(old, members)
    mutated = mutated_weights(carried, scale, np.random.default_rng(seed))
    for weights in (carried, mutated):
        assert len(weights) == len(members)
        assert all(weight >= 0 for weight in weights)
        assert sum(weights) == pytest.approx(1, abs=1e-9)


@given(weights=st.lists(st.floats(0.01, 1), min_size=2, max_size=9), lost=st.integers(0, 8))
def test_who_stays_keeps_the_proportions(weights: list[float], lost: int) -> None:
    old = {str(cell): weight / sum(weights) for cell, weight in enumerate(weights)}
    stay = [cell for cell in range(len(weights)) if cell != lost]
    left = carried_weights(old, stay)
    total = sum(weights[cell] for cell in stay)
    assert left == pytest.approx([weights[cell] / total for cell in stay])


@pytest.mark.slow
def test_mixture_sums_to_one_when_neighbours_leave_and_come() -> None:
    schedule = [{"round": 3, "neighbourhood": "ring"}, {"round": 5, "neighbourhood": "moore"}]
    config = tiny_config(
        rounds=6,
        grid={"shape": "3x3", "schedule": schedule},
        method={"name": "cellular", "mixture_scale": 0.2},
        training={"batches_per_round": 1},
    )
    dataset = tiny_dataset()
    population = Population(config, dataset, pixel_scorer(dataset))
    scorer = population.cells[0].scorer
    sizes = []
    for _ in range(6):
        for report in population.play():
            weights = report.details["mixture"]["weights"]
            members = population.method.grid.at(report.round).subpopulation(report.cell)
            assert list(weights) == [str(member) for member in members]
            assert sum(weights.values()) == pytest.approx(1, abs=1e-9)
            assert min(weights.values()) >= 0
            sizes.append(len(weights))
        mixture = population.method.ensemble(population.parcels(), scorer)
        assert sum(mixture.weights.values()) == pytest.approx(1, abs=1e-9)
    assert sizes == [5] * 18 + [3] * 18 + [9] * 18


@pytest.mark.slow
def test_the_mixture_of_a_round_is_that_of_the_neighbourhoods_of_the_round() -> None:
    """Not of the grid that the end of the run will have."""
    schedule = [{"round": 3, "neighbourhood": "moore"}]
    grid = {"shape": "3x3", "schedule": schedule}
    config = tiny_config(grid=grid, training={"batches_per_round": 1})
    dataset = tiny_dataset()
    population = Population(config, dataset, pixel_scorer(dataset))
    for members in (5, 5, 9):
        reports = population.play()
        mixture = population.method.ensemble(population.parcels(), population.cells[0].scorer)
        assert len(mixture.weights) == members
        details = [report.details["mixture"]["weights"] for report in reports]
        weights = {str(cell): weight for cell, weight in mixture.weights.items()}
        assert any(weights == pytest.approx(mixture) for mixture in details)


# ---------------------------------------------------------------------------- replacement


def test_whether_the_trained_network_was_accepted_is_in_the_events(tmp_path: Path) -> None:
    config = tiny_config(run={"dir": str(tmp_path / "run")}, rounds=2)
    training.train(config, dataset=tiny_dataset())
    details = [event for event in RunFolder.open(tmp_path / "run").events() if "cell" in event]
    assert len(details) == 8
    for event in details:
        for role in ("generator", "discriminator"):
            centre = event["centre"][role]
            assert centre["from"] == "offspring" or isinstance(centre["from"], int)
            assert isinstance(centre["replaced_worst"], bool)
            assert centre["fitness"] <= event["fitness"][role]


def test_comma_never_throws_the_trained_network_away() -> None:
    # Far too fast to learn anything: elitist replacement would refuse many of these.
    population = Population(tiny_config(method=comma(), training={"learning_rate": 0.5}))
    worse = 0
    for _ in range(4):
        for report in population.play():
            for centre in report.details["centre"].values():
                assert centre["from"] == "offspring"
                worse += not centre["replaced_worst"]
    assert worse > 0


@pytest.mark.parametrize("poisoned", ["generator", "discriminator"])
@pytest.mark.parametrize("replacement", ["elitist", "comma"])
def test_an_offspring_that_is_no_number_is_never_accepted(
    replacement: str, poisoned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Cell.train

    def poison(cell: Cell, gan: Gan, opposed: Rivals) -> Losses:
        losses = train(cell, gan, opposed)
        if cell.index == 0:
            one = gan.generator if poisoned == "generator" else gan.discriminator
            next(one.network.parameters()).data.view(-1)[0] = torch.nan
        return losses

    population = Population(tiny_config(method={"name": "cellular", "replacement": replacement}))
    before = population.parcels()[0].tensors
    monkeypatch.setattr(Cell, "train", poison)
    reports = population.play()
    assert [report.diverged for report in reports] == [True, False, False, False]
    centre = reports[0].details["centre"][poisoned]
    assert centre["from"] != "offspring"
    assert not centre["replaced_worst"]
    after = population.parcels()[0].tensors
    assert all(bool(value.isfinite().all()) for value in after.values())
    if replacement == "comma":  # back to what the cell itself was
        assert centre["from"] == 0
        for name, value in before.items():
            if name.startswith(f"{poisoned}.network."):
                assert after[name].equal(value)
