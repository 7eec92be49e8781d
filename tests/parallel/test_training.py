"""Where a run may be started from."""

from __future__ import annotations

from multiprocessing import process
from pathlib import Path

import pytest

from remuda.errors import RemudaError
from remuda.parallel import training
from tests.tiny import tiny_config, tiny_dataset


def test_a_script_that_trains_while_a_worker_imports_it_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process.current_process(), "_inheriting", True, raising=False)
    config = tiny_config(run={"dir": str(tmp_path / "run")})
    with pytest.raises(RemudaError, match='under `if __name__ == "__main__":`'):
        training.train(config, dataset=tiny_dataset())
    assert not (tmp_path / "run").exists()
