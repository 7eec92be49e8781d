"""How parcels travel between cells, without saying by what means.

The exchange plane: a cell publishes its parcel after a round, and collects its peers' parcels of
that round before the next. An engine decides what carries them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from remuda.cell import Parcel


class CommManager(ABC):
    """Publish and collect; every engine passes the same contract tests."""

    @abstractmethod
    def publish(self, parcel: Parcel) -> None:
        """Make a parcel readable for the cells that will ask for its round."""

    @abstractmethod
    def collect(self, cells: Sequence[int], round: int) -> list[Parcel]:
        """The parcels these cells published for this round, in the order asked for."""

    @abstractmethod
    def forget(self, round: int) -> None:
        """Drop the parcels of rounds before this one; nobody will ask for them again."""
