"""Every exchange, against the one contract."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.gan.parcels import Parcel, Part, map_parcel
from remuda.parallel.exchange import Exchange, FolderExchange, MemoryExchange
from tests.parallel.transports.contract import ExchangeContract
from tests.parallel.transports.scripted import parcel


class TestMemoryExchange(ExchangeContract):
    def make(self) -> Exchange:
        return MemoryExchange()

    def test_exchanges_share_nothing(self) -> None:
        """Two runs in one process must not see each other's parcels."""
        left, right = self.make(), self.make()
        left.put(1, parcel(0, 0))
        right.put(1, parcel(0, 0))
        left.forget(1, 1)
        assert [found.cell for found in right.get(1, [0], 0)] == [0]


class TestFolderExchange(ExchangeContract):
    @pytest.fixture(autouse=True)
    def _folders(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.factory = tmp_path_factory

    def make(self) -> Exchange:
        return FolderExchange(self.factory.mktemp("exchange"))

    def test_two_processes_that_open_one_folder_meet(self, tmp_path: Path) -> None:
        FolderExchange(tmp_path).put(1, parcel(5, 2))
        (found,) = FolderExchange(tmp_path).get(1, [5], 2)
        assert found.tensors.keys() == parcel(5, 2).tensors.keys()

    def test_the_newest_parcel_is_whole_though_a_newer_one_comes_meanwhile(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Reading opens a file twice: its header must not be of another parcel than its numbers."""
        exchange, read = FolderExchange(tmp_path), map_parcel
        exchange.put(1, parcel(0, 1))

        def as_another_comes(path: Path, part: Part) -> Parcel:
            exchange.put(1, parcel(0, 2))
            return read(path, part)

        monkeypatch.setattr("remuda.parallel.exchange.map_parcel", as_another_comes)
        assert exchange.newest(1, 0).round == 1
        assert sorted(path.name for path in (tmp_path / "term-1").iterdir()) == [
            "cell-0-round-1",
            "cell-0-round-2",
            "newest-0",
        ]

    def test_what_a_killed_writer_left_is_no_parcel(self, tmp_path: Path) -> None:
        exchange = FolderExchange(tmp_path)
        exchange.put(1, parcel(0, 1))
        whole = (tmp_path / "term-1" / "cell-0-round-1").read_bytes()
        (tmp_path / "term-1" / f".cell-0-round-2.{os.getpid() + 1}").write_bytes(whole[:50])
        with pytest.raises(LookupError):
            exchange.get(1, [0], 2)
        exchange.put(1, parcel(0, 2))
        assert [found.round for found in exchange.get(1, [0], 2)] == [2]
