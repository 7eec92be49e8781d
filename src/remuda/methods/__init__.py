"""The methods by name. A new one is its settings in `config`, one file here and one line below."""

from __future__ import annotations

from remuda.config import Config
from remuda.data import Dataset
from remuda.methods.base import Method, Mixture, RoundReport
from remuda.methods.cellular import Cellular
from remuda.methods.class_parallel import ClassParallel
from remuda.methods.gap import Gap
from remuda.methods.independent import Independent
from remuda.methods.lineage import all_met, linked_cells

METHODS: dict[str, type[Method]] = {
    "cellular": Cellular,
    "class_parallel": ClassParallel,
    "gap": Gap,
    "independent": Independent,
}


def resolved(config: Config, dataset: Dataset) -> Config:
    """The configuration as its method completes it from the data."""
    return METHODS[config.method.name].resolve(config, dataset)


def build_method(config: Config) -> Method:
    """The method a configuration names."""
    return METHODS[config.method.name](config, config.grid.build())


__all__ = [
    "METHODS",
    "Method",
    "Mixture",
    "RoundReport",
    "all_met",
    "build_method",
    "linked_cells",
    "resolved",
]
