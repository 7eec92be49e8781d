"""What a method remembers of a cell: one form in memory, one in parcels, old ones included."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from remuda.gan.parcels import Parcel
from remuda.methods import METHODS, lineage, lineages_met
from remuda.methods.cellular import CellularState
from remuda.methods.lineage import origin
from remuda.methods.state import CellState, Label, read_state
from tests.tiny import Population, tiny_config


@pytest.mark.parametrize(
    "state",
    [
        CellState(),
        CellState("run/3", ["0", "run/3"], Label(2, 40)),
        CellularState(None, None, None, {"0": 0.25, "2": 0.75}, 0.5),
    ],
)
def test_a_state_comes_back_from_json_as_it_was(state: CellState) -> None:
    again = type(state).from_json(json.loads(json.dumps(state.to_json())))
    assert again == state


def test_what_was_never_set_is_not_written() -> None:
    assert CellularState().to_json() == {}
    assert CellState(label=Label(1, 7)).to_json() == {"label": {"index": 1, "items": 7}}


def test_a_state_and_its_json_share_nothing() -> None:
    state = CellularState(mixture={"0": 1.0})
    written = state.to_json()
    again = CellularState.from_json(written)
    state.mixture["0"] = 0.5
    assert written == {"mixture": {"0": 1.0}}
    written["mixture"]["0"] = 0.1
    assert again.mixture == {"0": 1.0}


def test_whom_a_generator_met_is_copied_too() -> None:
    state = CellState(met=["0", "2"])
    written = state.to_json()
    assert state.met is not None
    state.met.append("3")
    assert written == {"met": ["0", "2"]}


def test_a_methods_own_kinds_of_values_are_written_as_json_has_them() -> None:
    state = _Nested(pairs=[Label(1, 2)], by_name={"a": Label(3, 4)})
    assert state.to_json() == {
        "pairs": [{"index": 1, "items": 2}],
        "by_name": {"a": {"index": 3, "items": 4}},
    }


@dataclass
class _Nested(CellState):
    pairs: list[Label] = field(default_factory=list)
    by_name: dict[str, Label] = field(default_factory=dict)


def test_where_a_gan_comes_from_is_read_without_the_rest_of_its_state() -> None:
    broken = {"lineage": 4, "ancestor": "run/2", "met": "not a list"}
    assert origin(Parcel(1, 3, {}, {"memory": broken})) == ("run/2", "4")


def test_what_another_method_left_is_ignored() -> None:
    parcel = Parcel(1, 3, {}, {"memory": {"mixture": {"0": 1.0}, "lineage": "4", "new": 1}})
    assert read_state(parcel, CellState) == CellState(lineage="4")


def test_a_parcel_that_says_nothing_has_the_lineage_of_its_cell() -> None:
    parcel = Parcel(5, 0, {}, {"memory": {}})
    assert lineage(parcel) == "5"
    assert lineages_met(parcel) == {"5"}


@pytest.mark.parametrize("name", METHODS)
def test_every_methods_state_travels_with_its_parcels(name: str) -> None:
    population = Population(tiny_config(method={"name": name}))
    population.play()
    for cell, parcel in zip(population.cells, population.parcels().values(), strict=True):
        assert isinstance(cell.state, CellState)
        assert type(cell.state).from_json(parcel.meta["memory"]) == cell.state


@pytest.mark.parametrize(
    "memory",
    [
        {"mixture": [1, 2]},
        {"mixture": {"0": None}},
        {"fitness": "x"},
        {"met": "abc"},
        {"label": {"index": "x", "items": 3}},
        {"label": {"index": 1}},
    ],
)
def test_a_state_that_makes_no_sense_is_refused(memory: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        CellularState.from_json(memory)


def test_lineages_may_be_the_numbers_that_the_first_versions_wrote() -> None:
    assert CellState.from_json({"lineage": 3, "met": [0, 3]}) == CellState("3", ["0", "3"])
