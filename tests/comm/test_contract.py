"""Every engine, against the one contract."""

from __future__ import annotations

from remuda.comm import CommManager, LocalComm
from tests.comm.contract import CommContract, parcel


class TestLocalComm(CommContract):
    def make(self) -> CommManager:
        return LocalComm()

    def test_engines_share_nothing(self) -> None:
        """Two runs in one process must not see each other's parcels."""
        left, right = self.make(), self.make()
        left.publish(parcel(0, 0))
        right.publish(parcel(0, 0))
        left.forget(1)
        assert [found.cell for found in right.collect([0], 0)] == [0]
