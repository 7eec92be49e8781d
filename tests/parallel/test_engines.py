"""Engines by name: a new one is a transport and a registry line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import remuda
from remuda.errors import ConfigError
from remuda.parallel import training
from remuda.parallel.engines import ENGINES, Engine, choose_engine, engine_names
from remuda.parallel.messages import Message
from remuda.parallel.starting import configure, work
from remuda.parallel.transports.base import MasterComm
from remuda.parallel.transports.local import LocalMaster
from remuda.runs.prepare import Run
from remuda.runs.store import RunFolder
from tests.parallel.runs import check_equal, settings

HEARD: list[str] = []


class ToyMaster(LocalMaster):
    """Two threads, and a list of all that the workers said."""

    def receive(self, timeout: float) -> list[tuple[int, Message]]:
        found = super().receive(timeout)
        HEARD.extend(type(message).__name__ for _, message in found)
        return found


def start_toy(engine: Engine, run: Run, folder: RunFolder) -> MasterComm:
    configured = configure(run, folder, "", engine.timeouts)
    return ToyMaster(lambda comm: work(comm, configured, lambda _: run), workers=2)


def test_an_engine_from_outside_the_package_trains_the_same_weights(
    tmp_path: Path, data: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENGINES, "toy", start_toy)
    training.train(settings(data, tmp_path / "run"), engine=choose_engine("toy", None))
    assert HEARD.count("Hello") == 2
    assert HEARD.count("Finished") == 2
    check_equal(tmp_path / "run", undisturbed)


def test_an_unknown_name_is_refused_with_the_nearest_and_all_that_are_allowed() -> None:
    expected = r"engine proces: unknown; did you mean process\? allowed: auto, local, process, mpi"
    with pytest.raises(ConfigError, match=expected):
        Engine("proces")


@pytest.mark.parametrize("stuck", [0, -1.0, float("nan")])
def test_a_limit_that_is_no_time_is_refused(stuck: float) -> None:
    with pytest.raises(ConfigError, match=r"timeouts.stuck=\S+: allowed: None, or seconds"):
        Engine("process", timeouts=remuda.Timeouts(stuck=stuck))
    assert choose_engine("process", 2, stuck=7).timeouts.stuck == 7
    assert choose_engine("process", 2).timeouts.stuck is None


def test_ranks_without_a_job_are_refused(tmp_path: Path, data: Path) -> None:
    with pytest.raises(ConfigError, match="not part of an MPI job"):
        training.train(settings(data, tmp_path / "run"), engine=Engine("mpi"))


def test_names_are_known_without_torch() -> None:
    code = (
        "import sys\n"
        "from remuda.parallel.engines import engine_names\n"
        f"assert engine_names() == {engine_names()!r}\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
