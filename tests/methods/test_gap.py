"""GAP against what papers.md and the article say: who swaps with whom, what travels, what stays."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from itertools import chain, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from remuda.clock import Clock
from remuda.config import Config
from remuda.errors import ConfigError
from remuda.gan.cell import Cell
from remuda.methods import ancestor, build_method, lineage, lineages_met
from remuda.methods.matching import matching
from remuda.runs.prepare import Run
from remuda.streams import choice_stream
from tests.tiny import DCGAN, MLP, Population, gan_tensors, same, tiny_config, tiny_dataset

GRAN: dict[str, Any] = {
    "family": "gran",
    "latent": 4,
    "width": 2,
    "discriminator_width": 2,
    "steps": 2,
}
NETWORKS = {
    "mlp": MLP,
    "batch norm": {**MLP, "batch_norm": True},
    "spectral norm": {**MLP, "spectral_norm": True},
    "dcgan": DCGAN,
}
every_network = pytest.mark.parametrize(
    "network", NETWORKS.values(), ids=[name.replace(" ", "-") for name in NETWORKS]
)


def gap(count: int = 4, **changes: Any) -> Config:
    method = {"name": "gap", **changes.pop("method", {})}
    return tiny_config(**{"grid": {"shape": f"1x{count}"}, "method": method, **changes})


def role(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name: value for name, value in tensors.items() if name.startswith(prefix)}


def weights(cell: Cell, which: str) -> dict[str, Tensor]:
    return role(gan_tensors(cell.gan), f"{which}.network.")


def moments(cell: Cell, which: str) -> dict[str, Tensor]:
    return role(gan_tensors(cell.gan), f"{which}.adam.")


def swapped_only(population: Population) -> None:
    """A round of which only the swap is done, so that nothing hides it."""
    population.round += 1
    for cell in population.cells:
        cell.round = population.round
        peers = population.method.peers(cell.index, cell.round)
        population.method._swap(cell, population.comm.collect(peers, cell.round - 1))  # type: ignore[attr-defined]


# ---------------------------------------------------------------------------- who with whom


@given(st.integers(0, 2**62), st.integers(1, 1000), st.integers(1, 40))
def test_a_matching_is_perfect_and_leaves_one_out_only_if_odd(
    seed: int, round: int, members: int
) -> None:
    partners = matching(seed, round, members)
    assert len(partners) == members
    assert sum(partner is None for partner in partners) == members % 2
    for cell, partner in enumerate(partners):
        if partner is not None:
            assert partner != cell
            assert partners[partner] == cell


def test_all_partners_are_equally_likely_and_rounds_are_independent() -> None:
    rounds = 3000
    drawn = [matching(5, round, 4)[0] for round in range(1, rounds + 1)]
    for other in (1, 2, 3):
        assert drawn.count(other) == pytest.approx(rounds / 3, rel=0.1)
    repeats = sum(first == second for first, second in pairwise(drawn))
    assert repeats == pytest.approx(rounds / 3, rel=0.1)
    out = [matching(5, round, 3).index(None) for round in range(1, rounds + 1)]
    for member in range(3):
        assert out.count(member) == pytest.approx(rounds / 3, rel=0.1)


def test_partners_are_peers_and_nobody_swaps_in_the_first_round() -> None:
    method = build_method(gap(5))
    assert all(method.peers(cell, 1) == () for cell in range(5))
    for round in range(2, 9):
        peers = [method.peers(cell, round) for cell in range(5)]
        assert sorted(map(len, peers)) == [0, 1, 1, 1, 1]
        for cell, found in enumerate(peers):
            assert all(peers[partner] == (cell,) for partner in found)


def test_without_swapping_nobody_has_peers() -> None:
    method = build_method(gap(method={"swap": "none"}))
    assert all(method.peers(cell, round) == () for cell in range(4) for round in range(1, 9))


# ---------------------------------------------------------------------------- what travels


@pytest.mark.slow
@every_network
@pytest.mark.parametrize("what", ["discriminator", "generator"])
@pytest.mark.parametrize("optimiser", ["stays", "moves"])
def test_a_pair_ends_up_with_each_others_network(
    network: dict[str, Any], what: str, optimiser: str
) -> None:
    method = {"swap": f"{what}s", "optimiser": optimiser}
    population = Population(gap(network=network, method=method))
    population.play()
    before = [copy.deepcopy(cell) for cell in population.cells]
    swapped_only(population)
    partners = matching(population.config.seed, 2, 4)
    other = "generator" if what == "discriminator" else "discriminator"
    for cell in population.cells:
        own, partner = before[cell.index], partners[cell.index]
        assert partner is not None
        assert weights(cell, what)
        # Parameters and buffers: batch-norm statistics, spectral norm's vectors.
        assert same(weights(cell, what), weights(before[partner], what))
        assert not same(weights(cell, what), weights(own, what))
        owner = before[partner] if optimiser == "moves" else own
        assert same(moments(cell, what), moments(owner, what))
        assert same(weights(cell, other), weights(own, other))
        assert same(moments(cell, other), moments(own, other))


def test_the_left_out_member_of_an_odd_population_keeps_all() -> None:
    population = Population(gap(3))
    population.play()
    out = matching(population.config.seed, 2, 3).index(None)
    before = gan_tensors(population.cells[out].gan)
    swapped_only(population)
    assert same(gan_tensors(population.cells[out].gan), before)


def test_after_a_swap_members_share_no_tensor() -> None:
    population = Population(gap())
    population.play()
    swapped_only(population)
    first, *rest = population.cells
    before = [gan_tensors(cell.gan) for cell in rest]
    parcels = {found.cell: dict(found.tensors) for found in population.comm.collect(range(4), 1)}
    kept = {cell: {k: v.clone() for k, v in parts.items()} for cell, parts in parcels.items()}
    first.train(first.gan)
    assert all(same(gan_tensors(c.gan), b) for c, b in zip(rest, before, strict=True))
    assert all(same(parcels[cell], kept[cell]) for cell in parcels)
    pointers = [
        {
            value.data_ptr()
            for one in (cell.gan.generator, cell.gan.discriminator)
            for value in one.tensors().values()
        }
        for cell in population.cells
    ]
    assert len(set().union(*pointers)) == sum(map(len, pointers))


def test_learning_rates_stay_with_their_member() -> None:
    population = Population(gap())
    for cell in population.cells:
        cell.gan.discriminator.learning_rate = 0.01 * (cell.index + 1)
    population.play()
    population.play()
    rates = [cell.gan.discriminator.learning_rate for cell in population.cells]
    assert rates == [0.01, 0.02, 0.03, 0.04]


# ---------------------------------------------------------------------------- lineages


def simulated(seed: int, members: int, rounds: int) -> tuple[list[str], list[set[str]]]:
    """Which discriminator each member has, and which its generator met, by hand."""
    held = [str(cell) for cell in range(members)]
    met: list[set[str]] = [set() for _ in range(members)]
    for round in range(1, rounds + 1):
        if round > 1:
            order = choice_stream(seed, 0, round, "matching").permutation(members)
            for place in range(0, members - 1, 2):
                a, b = order[place], order[place + 1]
                held[a], held[b] = held[b], held[a]
        for cell in range(members):
            met[cell].add(held[cell])
    return held, met


@pytest.mark.parametrize("members", [1, 2, 5])
def test_lineages_travel_and_generators_remember_them(members: int) -> None:
    population = Population(gap(members, rounds=6))
    for round in range(1, 7):
        population.play()
        held, met = simulated(population.config.seed, members, round)
        parcels = population.parcels()
        assert [lineage(parcels[cell]) for cell in range(members)] == held
        assert [set(lineages_met(parcels[cell])) for cell in range(members)] == met


def test_swapped_generators_take_their_memories_along() -> None:
    population = Population(gap(4, method={"swap": "generators"}))
    for round in range(1, 6):
        population.play()
        # Where generators travel, discriminators stay: their lineage is their place.
        parcels = population.parcels()
        assert [lineage(parcels[cell]) for cell in range(4)] == list("0123")
        if round == 2:
            partners = matching(population.config.seed, 2, 4)
            for cell, partner in enumerate(partners):
                assert lineages_met(parcels[cell]) == {str(cell), str(partner)}


def test_a_restored_cell_remembers_its_lineages() -> None:
    population = Population(gap(4, rounds=4))
    for _ in range(4):
        population.play()
    parcel = population.parcels()[2]
    fresh = Population(population.config).cells[2]
    fresh.restore(parcel)
    assert fresh.state == population.cells[2].state
    assert lineages_met(fresh.parcel()) == lineages_met(parcel) != {"2"}


# ---------------------------------------------------------------------------- missing partners


def test_a_member_without_its_partners_parcel_keeps_its_own_and_says_so() -> None:
    population = Population(gap())
    population.play()
    alone, twin = population.cells[0], copy.deepcopy(population.cells[0])
    before = weights(alone, "discriminator")
    alone.round = 2
    report = population.method.advance(alone, [], Clock())
    partner = matching(population.config.seed, 2, 4)[0]
    assert report.details["swap"] == {
        "partner": partner,
        "kept": True,
        "why": "its parcel is missing",
    }
    assert report.details["lineage"] == "0"
    # It has trained on with its own, exactly as if there were no swapping.
    twin.round = 2
    build_method(gap(method={"swap": "none"})).advance(twin, [], Clock())
    assert same(gan_tensors(alone.gan), gan_tensors(twin.gan))
    assert not same(weights(alone, "discriminator"), before)


def test_a_partner_that_has_not_trained_yet_is_not_swapped_with() -> None:
    population = Population(gap())
    partner = matching(population.config.seed, 2, 4)[0]
    assert partner is not None
    untrained = population.cells[partner].parcel()
    population.play()
    cell = population.cells[0]
    cell.round = 2
    report = population.method.advance(cell, [untrained], Clock())
    assert report.details["swap"]["kept"]
    assert report.details["swap"]["why"] == "its parcel is of round 0"


def test_the_events_say_who_swapped_with_whom() -> None:
    population = Population(gap(3))
    assert [report.details["swap"] for report in population.play()] == [None] * 3
    partners = matching(population.config.seed, 2, 3)
    for report in population.play():
        partner = partners[report.cell]
        expected = None if partner is None else {"partner": partner, "kept": False}
        assert report.details["swap"] == expected


# ---------------------------------------------------------------------------- against independent


@pytest.mark.slow
@every_network
def test_without_swapping_gap_is_independent_bit_for_bit(network: dict[str, Any]) -> None:
    off = Population(gap(network=network, method={"swap": "none"}))
    alone = Population(
        tiny_config(grid={"shape": "1x4"}, network=network, method={"name": "independent"})
    )
    for _ in range(3):
        off.play()
        alone.play()
        for mine, theirs in zip(off.cells, alone.cells, strict=True):
            assert same(gan_tensors(mine.gan), gan_tensors(theirs.gan))


def test_with_swapping_it_is_not() -> None:
    on, off = Population(gap()), Population(gap(method={"swap": "none"}))
    for population in (on, off):
        population.play()
        population.play()
    assert not same(gan_tensors(on.cells[0].gan), gan_tensors(off.cells[0].gan))


def test_one_member_is_a_single_gan() -> None:
    one = Population(gap(1))
    single = Population(tiny_config(grid={"shape": "1x1"}, method={"name": "independent"}))
    for _ in range(3):
        one.play()
        single.play()
    assert same(gan_tensors(one.cells[0].gan), gan_tensors(single.cells[0].gan))


# ---------------------------------------------------------------------------- swap_every


@pytest.mark.parametrize(
    ("share", "batches"), [(0.1, 1), (0.25, 1), (0.5, 2), (0.75, 3), (1.0, 4), (2.5, 10)]
)
def test_swap_every_makes_a_round_that_share_of_an_epoch(share: float, batches: int) -> None:
    population = Population(gap(2, method={"swap_every": share}))  # epochs of 4 batches
    assert [report.losses.batches for report in population.play()] == [batches] * 2


def test_rounds_of_part_of_an_epoch_go_on_where_the_last_one_stopped() -> None:
    parts = Population(gap(2, method={"swap_every": 0.75}))
    whole = Population(gap(2))
    seen: dict[str, list[list[int]]] = {"parts": [], "whole": []}
    for round in range(1, 9):
        parts.cells[0].round = round
        seen["parts"] += parts.cells[0]._batches().tolist()
    for round in range(1, 7):
        whole.cells[0].round = round
        seen["whole"] += whole.cells[0]._batches().tolist()
    assert seen["parts"] == seen["whole"]
    assert sorted(chain(*seen["parts"][:4])) == list(range(24))


def test_a_round_length_that_disagrees_with_swap_every_is_refused() -> None:
    agreed = gap(2, method={"swap_every": 0.5}, training={"batches_per_round": 2})
    assert Run.prepare(agreed, tiny_dataset()).config.round_batches(24) == 2
    with pytest.raises(ConfigError) as caught:
        Run.prepare(
            gap(2, method={"swap_every": 0.5}, training={"batches_per_round": 3}), tiny_dataset()
        )
    assert str(caught.value) == (
        "training.batches_per_round=3: method.swap_every=0.5 of an epoch of 4 batches is 2; "
        "allowed: 2, or null in either"
    )


def test_ancestors_go_with_generators() -> None:
    population = Population(gap(2, method={"swap": "generators"}))
    found = []
    for _ in range(3):
        population.play()
        parcels = population.parcels().values()
        found.append([ancestor(parcel) for parcel in parcels])
        assert [lineage(parcel) for parcel in parcels] == ["0", "1"]
    assert found == [["0", "1"], ["1", "0"], ["0", "1"]]


# ---------------------------------------------------------------------------- members that differ


def test_a_hybrid_of_dcgan_and_gran_swaps_discriminators() -> None:
    config = gap(2, network=DCGAN, members=[{}, {"network": GRAN}])
    build_method(config).check((1, 8, 8))
    population = Population(config)
    population.play()
    before = [weights(cell, "discriminator") for cell in population.cells]
    swapped_only(population)
    assert same(weights(population.cells[0], "discriminator"), before[1])
    assert same(weights(population.cells[1], "discriminator"), before[0])
    assert not any(report.diverged for _ in range(3) for report in Population(config).play())


@pytest.mark.parametrize(
    ("swap", "other", "says"),
    [
        ("discriminators", {**DCGAN, "width": 3}, r"layer 0 is FromImage\(1, 2.*FromImage\(1, 3"),
        ("discriminators", {**GRAN, "discriminator_width": 4}, "layer 0 is FromImage"),
        ("discriminators", {**DCGAN, "spectral_norm": True}, "spectral_norm is False .* True"),
        ("discriminators", {**DCGAN, "minibatch_stddev": 3}, r"MinibatchDeviation\(group=3\)"),
        ("discriminators", MLP, r"\(dcgan\) and members\[1\] \(mlp\)"),
        ("generators", GRAN, "family is dcgan in one and gran in the other"),
        ("generators", {**DCGAN, "latent": 5}, "latent is 4 in one and 5 in the other"),
    ],
)
def test_members_that_cannot_swap_are_named_before_training(
    swap: str, other: dict[str, Any], says: str
) -> None:
    config = gap(4, network=DCGAN, method={"swap": swap}, members=[{}, {"network": other}])
    with pytest.raises(ConfigError, match=says) as caught:
        Run.prepare(config, tiny_dataset())
    assert "members[0]" in str(caught.value)
    assert "members[1]" in str(caught.value)
    assert "allowed:" in str(caught.value)
    unswapped = gap(4, network=DCGAN, method={"swap": "none"}, members=[{}, {"network": other}])
    Run.prepare(unswapped, tiny_dataset())


def test_groups_of_two_sizes_cannot_swap_discriminators_but_generators() -> None:
    def prepare(swap: str) -> None:
        networks = [{"network": {**DCGAN, "minibatch_stddev": group}} for group in (2, 3)]
        config = gap(4, network=DCGAN, method={"swap": swap}, members=networks)
        Run.prepare(config, tiny_dataset())

    with pytest.raises(ConfigError, match=r"\(group=2\) in one and MinibatchDeviation\(group=3\)"):
        prepare("discriminators")
    prepare("generators")


def test_priors_noise_and_clipping_do_not_stand_in_the_way_of_swapping_discriminators() -> None:
    members = [{"prior": "uniform", "gradient_clip": 1.0}, {"input_noise": [[0.5, 0.3]]}]
    population = Population(gap(4, members=members))
    population.method.check((1, 8, 8))
    for _ in range(3):
        assert not any(report.diverged for report in population.play())
    assert [cell.network.prior for cell in population.cells] == ["uniform", "gaussian"] * 2
    assert [cell.training.gradient_clip for cell in population.cells] == [1.0, None] * 2
    # The clip is the member's, also on a discriminator that came from one that has none.
    assert [cell.gan.discriminator.settings.gradient_clip for cell in population.cells] == [
        1.0,
        None,
    ] * 2


def priors(population: Population) -> list[str]:
    return [cell.network.prior for cell in population.cells]


def test_priors_go_with_swapped_generators() -> None:
    members = [{"prior": "uniform"}, {}, {}, {}]
    population = Population(gap(4, method={"swap": "generators"}, members=members))
    population.method.check((1, 8, 8))
    for _ in range(5):
        population.play()
        found = {ancestor(parcel): parcel.cell for parcel in population.parcels().values()}
        expected = ["gaussian"] * 4
        expected[found["0"]] = "uniform"
        assert priors(population) == expected
        fresh = Population(population.config)
        for cell, parcel in population.parcels().items():
            fresh.cells[cell].restore(parcel)
        assert priors(fresh) == expected


def test_a_generator_with_another_members_prior_trains_and_draws_as_at_home() -> None:
    members = [{"prior": "uniform"}, {"prior": "gaussian"}]
    config = gap(2, method={"swap": "generators"}, members=members)
    population = Population(config)
    population.play()
    swapped_only(population)
    here = population.cells[0]
    parcel = here.parcel()
    at_home = Population(config.model_copy(update={"members": config.members[::-1]})).cells[0]
    meta = {name: value for name, value in parcel.meta.items() if name != "prior"}
    at_home.restore(dataclasses.replace(parcel, meta=meta))
    for cell in (here, at_home):
        assert cell.network.prior == "gaussian"
        cell.train(cell.gan)
    assert same(gan_tensors(here.gan), gan_tensors(at_home.gan))
    assert torch.equal(here.images(5, "look"), at_home.images(5, "look"))


def test_only_a_prior_from_elsewhere_is_told_and_an_unknown_one_is_refused() -> None:
    members = [{"prior": "uniform"}, {}]
    population = Population(gap(2, method={"swap": "generators"}, members=members))
    population.play()
    assert not any("prior" in parcel.meta for parcel in population.parcels().values())
    population.play()
    parcel = population.parcels()[0]
    assert parcel.meta["prior"] == "gaussian"
    damaged = dataclasses.replace(parcel, meta={**parcel.meta, "prior": "normal"})
    with pytest.raises(ValueError, match="'normal'; allowed: gaussian, uniform"):
        population.cells[0].restore(damaged)


def test_diverged_members_keep_the_network_they_were_given() -> None:
    population = Population(gap(2))
    population.play()
    before = weights(population.cells[1], "discriminator")
    population.dataset.items.stored[:] = float("nan")
    reports = population.play()
    assert all(report.diverged for report in reports)
    assert same(weights(population.cells[0], "discriminator"), before)
    assert all(
        bool(torch.isfinite(value).all())
        for cell in population.cells
        for value in gan_tensors(cell.gan).values()
    )
