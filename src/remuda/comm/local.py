"""All cells in one process: the baseline engine, and the fake that tests of others use."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.cell import Parcel
from remuda.comm.base import CommManager


class LocalComm(CommManager):
    """A dictionary of parcels. They are immutable copies, so handing out references is safe."""

    def __init__(self) -> None:
        self._parcels: dict[tuple[int, int], Parcel] = {}

    def publish(self, parcel: Parcel) -> None:
        key = (parcel.cell, parcel.round)
        if key in self._parcels:
            raise ValueError(f"cell {parcel.cell} published round {parcel.round} twice")
        self._parcels[key] = parcel

    def collect(self, cells: Sequence[int], round: int) -> list[Parcel]:
        missing = [cell for cell in cells if (cell, round) not in self._parcels]
        if missing:
            raise LookupError(f"round {round} was not published by cells {missing}")
        return [self._parcels[cell, round] for cell in cells]

    def forget(self, round: int) -> None:
        self._parcels = {key: value for key, value in self._parcels.items() if key[1] >= round}
