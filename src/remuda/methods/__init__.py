"""The methods by name. A new one is its settings in `config`, one file here and one line below."""

from __future__ import annotations

from remuda.config import Config
from remuda.data import Dataset
from remuda.methods.averaging import Averaging, mean_tensors
from remuda.methods.base import METHODS, Genes, Method, Mixture, RoundReport, build_method
from remuda.methods.cellular import Cellular
from remuda.methods.class_parallel import ClassParallel
from remuda.methods.gap import Gap
from remuda.methods.independent import Independent
from remuda.methods.lineage import (
    all_met,
    ancestor,
    diversity,
    lineage,
    lineages_met,
    linked_cells,
    qualified,
)
from remuda.methods.state import CellState, read_state

METHODS |= {
    "averaging": Averaging,
    "cellular": Cellular,
    "class_parallel": ClassParallel,
    "gap": Gap,
    "independent": Independent,
}


def resolved(config: Config, dataset: Dataset) -> Config:
    """The configuration as its method completes it from the data."""
    return METHODS[config.method.name].resolve(config, dataset)


__all__ = [
    "METHODS",
    "CellState",
    "Genes",
    "Method",
    "Mixture",
    "RoundReport",
    "all_met",
    "ancestor",
    "build_method",
    "diversity",
    "lineage",
    "lineages_met",
    "linked_cells",
    "mean_tensors",
    "qualified",
    "read_state",
    "resolved",
]
