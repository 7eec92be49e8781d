"""`--portable`: the same weights whatever libraries were told, on every way to start a run."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.parallel.ranks import shared_name
from remuda.runs.portable import VARIABLES
from remuda.runs.store import RunFolder
from tests.cli.in_process import remuda
from tests.jobs import Job, needs_mpi
from tests.tiny_runs import last_weights, tiny, tree

# What another kind of processor would choose, or a user has exported.
OTHER = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "AVX2",
    "DNNL_MAX_CPU_ISA": "SSE41",
}
x86_only = pytest.mark.skipif(platform.machine() != "x86_64", reason="portable is for x86-64")


def command(*words: str, **variables: str) -> None:
    """`remuda` as a user starts it: torch is loaded by nobody before."""
    done = subprocess.run(
        [sys.executable, "-m", "remuda", *words, "--plain"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    run = tmp_path_factory.mktemp("portable") / "run"
    command("train", *tiny(data, run), "--portable", "--engine", "local")
    return run


def test_where_torch_is_loaded_already_it_is_refused_and_leaves_nothing(
    tmp_path: Path, data: Path
) -> None:
    run = tmp_path / "run"
    code, output, errors = remuda(tmp_path, "train", *tiny(data, run), "--portable")
    assert (code, output) == (2, "")
    assert errors.startswith("remuda: portable=true: ")
    assert len(errors.splitlines()) == 1
    assert not run.exists()


def test_it_is_short_for_a_setting(tmp_path: Path, data: Path) -> None:
    words = tiny(data, tmp_path / "run", "threads=2")
    for more in (["--portable"], ["portable=true"]):
        code, _, errors = remuda(tmp_path, "train", *words, *more)
        assert (code, errors) == (2, "remuda: portable=true: threads=2; allowed: threads=1\n")


@pytest.mark.slow
@x86_only
def test_workers_compute_the_same_whatever_the_user_has_exported(
    tmp_path: Path, data: Path, portable: Path
) -> None:
    run = tmp_path / "run"
    words = (*tiny(data, run), "--portable", "--engine", "process", "--workers", "2")
    command("train", *words, **OTHER)
    assert tree(run) == tree(portable)
    assert RunFolder(run).config().portable
    env = json.loads((run / "env.json").read_text())
    assert env["machine"] == json.loads((portable / "env.json").read_text())["machine"]
    (start,) = (event for event in RunFolder(run).events() if event["event"] == "started")
    assert [host["machine"] for host in start["hosts"].values()] == [env["machine"]]


@pytest.mark.slow
@x86_only
def test_a_resumed_run_goes_on_as_portable(tmp_path: Path, data: Path, portable: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(portable, run)
    folder = RunFolder(run)
    last = folder.checkpoints()[-1].round
    folder.drop_checkpoint(last)
    folder.rewind_events(last - 1)
    shutil.rmtree(run / "ensemble")
    (run / "result.json").unlink()
    config = run / "config.yaml"
    config.write_text(config.read_text().replace(str(portable), str(run)))
    command("resume", str(run), "--engine", "local", **OTHER)
    assert last_weights(run) == last_weights(portable)


@pytest.mark.slow
@needs_mpi
@x86_only
def test_ranks_of_ones_own_mpiexec_compute_the_same(
    tmp_path: Path, data: Path, portable: Path
) -> None:
    run = tmp_path / "run"
    words = ("remuda", "train", *tiny(data, run), "--portable", "--plain")
    job = Job(tmp_path, 3, *words, environ=OTHER)
    assert job.wait() == 0, job.said
    assert "same bits" not in job.said
    assert tree(run) == tree(portable)
    fingerprint = json.loads((run / "env.json").read_text())["data"]["fingerprint"]
    assert not Path("/dev/shm", f"remuda-{shared_name(run, fingerprint)}").exists()


def test_what_is_set_is_not_what_was_exported() -> None:
    """Otherwise the tests above show nothing."""
    assert all(OTHER[name] != value for name, value in VARIABLES.items())
