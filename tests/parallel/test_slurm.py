"""The job script, run by bash with stand-ins for remuda and Slurm."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from remuda.parallel.slurm import Request, job_script

REQUEST = Request(nodes=2, tasks=5, threads=1, time="01:00:00", notice=60)


def start(folder: Path, remuda: str, *, resumed: bool = False) -> subprocess.Popen[str]:
    """The script in a job of five tasks, with a shell script in remuda's place."""
    (folder / "fake").write_text(f'echo "$@" > words\n{remuda}\n')
    (folder / "scontrol").write_text('#!/bin/sh\necho "$@" > scontrol-words\n')
    (folder / "scontrol").chmod(0o755)
    if resumed:
        (folder / "runs/it-7").mkdir(parents=True)
        (folder / "runs/it-7/config.yaml").touch()
    script = job_script("it", ["quickstart", "name=a b"], None, REQUEST, ["bash", "fake"])
    (folder / "job").write_text(script)
    environ = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "5", "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.Popen(["bash", "job"], cwd=folder, env=environ, text=True)


def words(folder: Path) -> str:
    return (folder / "words").read_text().strip()


def test_the_header_asks_for_what_was_requested() -> None:
    script = job_script("it", [], None, REQUEST, ["remuda"])
    for line in ("--nodes=2", "--ntasks=5 ", "--signal=B:USR1@60 ", "--requeue\n"):
        assert f"#SBATCH {line}" in script


def test_a_first_start_trains_and_a_later_one_resumes(tmp_path: Path) -> None:
    assert start(tmp_path, "exit 0").wait(30) == 0
    rest = 'run.dir="runs/it-7" --engine mpi --workers 4'
    assert words(tmp_path) == f"train quickstart name=a b {rest}"
    assert start(tmp_path, "exit 0", resumed=True).wait(30) == 0
    assert words(tmp_path) == "resume runs/it-7 --engine mpi --workers 4"
    assert not (tmp_path / "scontrol-words").exists()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGUSR1, 75), (signal.SIGTERM, 143)], ids=["notice", "cancelled"]
)
def test_a_job_whose_time_is_up_saves_and_queues_itself_again_but_not_a_cancelled_one(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    job = start(
        tmp_path,
        "trap 'sleep 0.3; touch saved; exit 75' USR1; trap 'touch saved; exit 143' TERM; "
        "touch ready; while :; do sleep 0.05; done",
    )
    while not (tmp_path / "ready").exists():
        time.sleep(0.01)
    job.send_signal(number)
    assert job.wait(30) == code
    assert (tmp_path / "saved").exists()
    assert (tmp_path / "scontrol-words").exists() == (code == 75)


def test_a_failed_run_is_not_queued_again(tmp_path: Path) -> None:
    assert start(tmp_path, "exit 4").wait(30) == 4
    assert not (tmp_path / "scontrol-words").exists()
