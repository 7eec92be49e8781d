"""The data of a host: read by its first rank, mapped by the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.config import load_config
from remuda.data import load_dataset, open_shared_dataset
from remuda.parallel import ranks
from remuda.parallel.shared_memory import leave_shared_folder
from tests.tiny_runs import tiny, write_data


def test_the_second_rank_of_a_host_reads_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, *overrides = tiny(write_data(tmp_path / "images.npz"), tmp_path / "run")
    config = load_config(source, overrides)
    name = ranks.shared_name(tmp_path / "run")
    reads = []

    def counted(settings: object) -> object:
        reads.append(settings)
        return load_dataset(config.data)

    monkeypatch.setattr(ranks, "load_dataset", counted)
    folders = [ranks.host_dataset(config, name, 0) for _ in range(3)]
    try:
        assert len(set(folders)) == 1
        assert len(reads) == 1
        assert open_shared_dataset(folders[0]).fingerprint == load_dataset(config.data).fingerprint
    finally:
        leave_shared_folder(folders[0])
    assert not folders[0].exists()
