"""Cellular coevolution on a toroidal grid; start with `method.py`."""

from __future__ import annotations

from remuda.methods.cellular.breeding import CellularState
from remuda.methods.cellular.fitness import FitnessTable
from remuda.methods.cellular.method import Cellular
from remuda.methods.cellular.mixtures import carried_weights, mutated_weights

__all__ = ["Cellular", "CellularState", "FitnessTable", "carried_weights", "mutated_weights"]
