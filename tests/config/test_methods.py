"""What methods require of a configuration. (Tournaments and grids: test_load.py.)"""

from __future__ import annotations

from typing import Any

import pytest

from remuda.config import (
    AveragingSettings,
    CellularSettings,
    ClassParallelSettings,
    GapSettings,
    IndependentSettings,
    MethodSettings,
    validate,
)
from remuda.errors import ConfigError


def class_parallel(**values: Any) -> dict[str, Any]:
    return {"name": "class_parallel", **values}


def test_the_methods_are_listed_in_the_order_they_are_defined() -> None:
    assert MethodSettings.names() == [
        "cellular",
        "independent",
        "gap",
        "averaging",
        "class_parallel",
    ]


@pytest.mark.parametrize(
    "changes",
    [{"communication": False}, {"selection": False}],
    ids=lambda changes: next(iter(changes)),
)
def test_without_tournaments_their_size_is_free(changes: dict[str, bool]) -> None:
    method = {"name": "cellular", "tournament_size": 99, **changes}
    assert validate({"method": method}).method == CellularSettings(tournament_size=99, **changes)


@pytest.mark.parametrize("section", ["method", "method.within"])
@pytest.mark.parametrize(
    ("objective", "losses", "fitness_loss", "says"),
    [
        ("wasserstein", ["minimax"], None, ".losses=['minimax'] does not go with training.obj"),
        ("wasserstein", [], "minimax", ".fitness_loss=minimax does not go with training.obj"),
        ("minimax", [], "wasserstein", ".fitness_loss=wasserstein does not go with training.obj"),
        ("wasserstein", [], "wasserstein", None),
        ("minimax", ["relativistic", "heuristic"], "least_squares", None),
        ("relativistic", ["minimax"], "minimax", None),
    ],
)
def test_losses_must_suit_one_discriminator(
    section: str, objective: str, losses: list[str], fitness_loss: str | None, says: str | None
) -> None:
    cellular = {"name": "cellular", "losses": losses, "fitness_loss": fitness_loss}
    method = class_parallel(replicas=2, within=cellular) if "within" in section else cellular
    values = {"method": method, "training": {"objective": objective}}
    if says is None:
        validate(values)
        return
    with pytest.raises(ConfigError) as caught:
        validate(values)
    assert str(caught.value).startswith(section + says)


@pytest.mark.parametrize("name", ["cellular", "gap", "independent", "averaging"])
def test_only_cells_that_breed_or_average_need_equal_networks(name: str) -> None:
    values = {"method": name, "members": [{}, {"network": {"family": "mlp", "hidden": [3]}}]}
    if name not in ("cellular", "averaging"):
        assert len(validate(values).networks) == 2
        return
    with pytest.raises(ConfigError, match=r"members\[1\]: its networks differ .* or method=gap"):
        validate(values)


def test_members_may_outnumber_the_cells_where_the_data_decide_the_grid() -> None:
    members = [{"gradient_clip": value} for value in (1, 2, 3, 4, 5)]
    assert len(validate({"method": "class_parallel", "members": members}).members) == 5
    with pytest.raises(ConfigError, match="members: 5 entries for 4 cells"):
        validate({"method": "independent", "members": members})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data": {"view": "label", "label": 1}}, r"data\.view=label: under .* allowed: all"),
        ({"data": {"validation": 5}}, r"data\.validation=5 holds out items of all labels"),
        ({"grid": {"shape": "1x2", "neighbourhood": "table", "table": [[1], [0]]}}, "neither"),
    ],
)
def test_class_parallel_decides_views_and_grid_itself(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        validate({"method": "class_parallel", **changes})


# ---------------------------------------------------------------------------------- exchange


def test_clones_play_each_other_unless_asked_otherwise() -> None:
    assert CellularSettings().opponents == "partner"
    assert CellularSettings().exchange == "loss"


@pytest.mark.parametrize("exchange", ["score", "average"])
def test_only_selection_by_loss_has_tournaments(exchange: str) -> None:
    method = {"name": "cellular", "tournament_size": 99, "exchange": exchange}
    validate({"method": method})
    with pytest.raises(ConfigError, match=r"method\.tournament_size=99 is larger than"):
        validate({"method": {**method, "exchange": "loss"}})


@pytest.mark.parametrize("section", ["method", "method.within"])
@pytest.mark.parametrize(
    ("settings", "training", "says"),
    [
        ({"exchange": "score", "opponents": "subpopulation"}, {}, ".opponents=subpopulation does"),
        ({"genes": {"average": [5, 50]}}, {}, ".genes.average=[5.0, 50.0] needs an averaged"),
        ({"genes": {"average": [5, 50]}}, {"average": 9}, None),
        (
            {"genes": {"r1": [1, 2]}},
            {"objective": "relativistic"},
            ".genes.r1=[1.0, 2.0]: training",
        ),
        ({"genes": {"r1": [1, 2]}}, {"objective": "relativistic", "gamma": 0}, None),
        ({"genes": {"r1": [1, 2]}}, {"objective": "wasserstein"}, None),
        ({"genes": {"learning_rate": [1e-4, 1e-4]}, "exchange": "score"}, {}, None),
    ],
)
def test_genes_and_exchange_must_suit_the_training(
    section: str, settings: dict[str, Any], training: dict[str, Any], says: str | None
) -> None:
    cellular = {"name": "cellular", **settings}
    method = class_parallel(replicas=2, within=cellular) if "within" in section else cellular
    if says is None:
        validate({"method": method, "training": training})
        return
    with pytest.raises(ConfigError) as caught:
        validate({"method": method, "training": training})
    assert str(caught.value).startswith(section + says)
    assert "allowed:" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("gene", ["learning_rate", "r1", "average"])
@pytest.mark.parametrize("limits", [[2, 1], [0, 1], [-1, 1], [1], [1, 2, 3], "much"])
def test_ranges_that_are_none_are_refused(gene: str, limits: Any) -> None:
    values = {"method": {"name": "cellular", "genes": {gene: limits}}, "training": {"average": 9}}
    with pytest.raises(ConfigError, match=rf"^method\.genes\.{gene}"):
        validate(values)


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "averaging", "peers": "strangers"},
        {"name": "averaging", "every": 0},
        {"name": "averaging", "moments": "lost"},
        {"name": "cellular", "exchange": "money"},
        {"name": "cellular", "select_every": 0},
        {"name": "cellular", "margin": -1},
        {"name": "cellular", "most_relatives": 0},
        {"name": "cellular", "fitness_batches": 0},
        {"name": "cellular", "ensemble": "worst"},
        {"name": "cellular", "genes": {"step": -1}},
    ],
    ids=lambda settings: "-".join(list(settings)),
)
def test_values_that_are_not_allowed_are_named(settings: dict[str, Any]) -> None:
    (key,) = settings.keys() - {"name"}
    with pytest.raises(ConfigError, match=rf"^method\.{key}") as caught:
        validate({"method": settings})
    assert "allowed:" in str(caught.value)


def test_replicas_of_a_label_do_not_average() -> None:
    """They do not have a common start."""
    with pytest.raises(ConfigError, match=r"^method\.within"):
        validate({"method": class_parallel(replicas=2, within={"name": "averaging"})})


# ---------------------------------------------------------------------------------- rounds


@pytest.mark.parametrize(
    "method",
    [
        CellularSettings(),
        IndependentSettings(),
        GapSettings(),
        AveragingSettings(),
        ClassParallelSettings(),
        ClassParallelSettings(replicas=2, within=GapSettings()),
    ],
    ids=lambda method: repr(method)[:40],
)
def test_a_round_is_an_epoch_or_as_long_as_given(method: MethodSettings) -> None:
    assert method.round_batches(12, None) == 12
    assert method.round_batches(12, 5) == 5


@pytest.mark.parametrize("wrapped", [False, True])
def test_epochs_between_swaps_set_the_length_of_a_round(wrapped: bool) -> None:
    gap = GapSettings(swap_every=0.25)
    method = ClassParallelSettings(replicas=2, within=gap) if wrapped else gap
    assert method.round_batches(12, None) == method.round_batches(12, 3) == 3
    assert method.round_batches(1, None) == 1
    with pytest.raises(ConfigError, match=r"training\.batches_per_round=4: .* allowed: 3, or null"):
        method.round_batches(12, 4)
