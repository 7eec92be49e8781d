"""Learning curves of discriminators from the events of runs: cost on training and held-out data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remuda.errors import ConfigError
from remuda.runs.store import RunFolder


@dataclass(frozen=True)
class Costs:
    """Costs of a run's discriminators; rows are members, columns are rounds."""

    path: Path
    rounds: npt.NDArray[np.int64]
    train: npt.NDArray[np.float64]
    validation: npt.NDArray[np.float64]

    @property
    def spreads(self) -> npt.NDArray[np.float64]:
        """Mean |training − validation| of every member: how much it overfits."""
        found: npt.NDArray[np.float64] = np.nanmean(np.abs(self.train - self.validation), axis=1)
        return found

    @property
    def spread(self) -> float:
        """Averaged over the members."""
        return float(self.spreads.mean())

    @property
    def averaged_spread(self) -> float:
        """Mean |training − validation| of the members' averaged curves, in which noise cancels."""
        between = np.nanmean(self.train, axis=0) - np.nanmean(self.validation, axis=0)
        return float(np.nanmean(np.abs(between)))

    @property
    def late_gap(self) -> float:
        """Mean of validation − training over the second half of the rounds, with its sign."""
        half = len(self.rounds) // 2
        return float(np.nanmean(self.validation[:, half:] - self.train[:, half:]))

    @property
    def deviation(self) -> float:
        """Standard deviation of the validation cost among the members, averaged over rounds."""
        return float(np.nanmean(np.nanstd(self.validation, axis=0)))


def read_costs(path: Path) -> Costs:
    """The costs in a run's events, of the rounds that all its members have."""
    folder = RunFolder.open(path)
    cells = folder.config().cells
    found: dict[int, dict[int, tuple[float, float]]] = {}
    for event in folder.iter_events():
        cost = event.get("cost")
        if event["event"] == "round" and cost is not None:
            pair = (_number(cost["train"]), _number(cost["validation"]))
            found.setdefault(event["round"], {})[event["cell"]] = pair
    rounds = sorted(round for round, costs in found.items() if costs.keys() >= set(range(cells)))
    if not rounds:
        raise ConfigError(
            f"{path}: no discriminator costs in its events; they are recorded where "
            "data.validation holds items out, e.g. data.validation=1000"
        )
    table = np.array([[found[round][cell] for round in rounds] for cell in range(cells)])
    return Costs(path, np.array(rounds), table[..., 0], table[..., 1])


def _number(value: float | None) -> float:
    # NaN is null in the events.
    return float("nan") if value is None else float(value)
