"""The supervisor, with launchers that do what a lost job does."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from remuda.errors import STOPPED, ConfigError
from remuda.parallel import supervisor
from remuda.parallel.protocol import may_restart
from remuda.parallel.supervisor import (
    Commands,
    LostJobError,
    Supervisor,
    find_mpiexec,
    open_mpi_flags,
)


class Jobs:
    """A launcher written in shell; each job of it is the next line of a script."""

    def __init__(self, folder: Path, *lines: str) -> None:
        self.folder, self.run = folder, folder / "run"
        self.run.mkdir()
        for number, line in enumerate(lines, 1):
            (folder / f"job-{number}").write_text(line)
        self.launcher = folder / "launcher"
        self.launcher.write_text(
            f"cd {folder}; n=$(($(cat count 2>/dev/null || echo 0) + 1)); echo $n > count\n"
            'echo "$@" >> words; . ./job-$n\n'
        )
        self.said: list[str] = []

    def supervise(self, restarts: int = 2) -> int:
        commands = Commands(["train", "it"], ["resume", "it"])
        launcher = ["bash", str(self.launcher)]
        return Supervisor(launcher, commands, self.run, restarts, self.said.append).run()

    @property
    def started(self) -> list[str]:
        return (self.folder / "words").read_text().splitlines()


FINISH = "touch run/config.yaml run/result.json"


def is_gone(pid: int) -> bool:
    """Ended; where nobody waits for orphans, a dead one stays in the list as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_job_that_leaves_a_result_has_succeeded_whatever_mpiexec_says(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, f"{FINISH}; exit 1")
    assert jobs.supervise() == 0
    assert jobs.said == []


@pytest.mark.slow
def test_a_lost_job_is_resumed_where_its_folder_is_there(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, "kill -9 $$", "touch run/config.yaml; exit 1", FINISH)
    assert jobs.supervise() == 0
    assert jobs.started == ["train it", "train it", "resume it"]
    assert len(jobs.said) == 2


def test_a_job_that_is_lost_too_often_is_given_up(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, *["exit 1"] * 5)
    with pytest.raises(LostJobError, match="lost 2 times"):
        jobs.supervise(restarts=1)
    assert len(jobs.started) == 2


@pytest.mark.parametrize("code", [2, 3])
def test_a_users_mistake_is_not_repeated(tmp_path: Path, code: int) -> None:
    jobs = Jobs(tmp_path, *[f"exit {code}"] * 2)
    assert jobs.supervise() == code
    assert len(jobs.started) == 1


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGUSR1, STOPPED), (signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_a_signal_reaches_the_job_and_ends_the_supervision(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    wait = "trap 'touch told; exit 75' USR1; touch ready; while :; do sleep 0.05; done"
    jobs = Jobs(tmp_path, wait)

    def send() -> None:
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    assert jobs.supervise() == code
    thread.join()
    assert (tmp_path / "told").exists()
    assert len(jobs.started) == 1


def test_a_job_without_a_sign_of_life_is_ended_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_START_SECONDS", 0.5)
    jobs = Jobs(tmp_path, "echo $$ > pid; exec sleep 100", FINISH)
    assert jobs.supervise() == 0
    assert is_gone(int((tmp_path / "pid").read_text()))


@pytest.mark.slow
def test_a_job_whose_master_falls_silent_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_SILENCE_SECONDS", 0.7)
    beat = "for i in 1 2 3 4 5 6; do touch run/status.json; sleep 0.3; done; touch beaten"
    jobs = Jobs(tmp_path, f"{beat}; exec sleep 100", FINISH)
    assert jobs.supervise() == 0
    assert (tmp_path / "beaten").exists(), "as long as it beats it is left alone"
    assert any("no life" in line for line in jobs.said)


def test_processes_that_outlive_their_launcher_are_ended(tmp_path: Path) -> None:
    """Ranks are in groups of their own, and may not notice that mpiexec is gone."""
    orphan = "set -m; sleep 100 & echo $! > pid; kill -9 $$"
    jobs = Jobs(tmp_path, orphan, FINISH)
    assert jobs.supervise() == 0
    assert is_gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("mpiexec (Open MPI) 5.0.11\n", ["--with-ft", "ulfm", "--oversubscribe"]),
        ("mpiexec (OpenRTE) 4.1.4\n", ["--oversubscribe", "--bind-to", "none"]),
        ("HYDRA build details:\n Version: 4.2\n", []),
    ],
)
def test_each_launcher_gets_flags_it_knows(version: str, expected: list[str]) -> None:
    assert open_mpi_flags(version)[:3] == expected


def test_a_job_that_does_not_end_after_its_result_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_GRACE_SECONDS", 0.3)
    jobs = Jobs(tmp_path, f"{FINISH}; exec sleep 100")
    assert jobs.supervise() == 0


def test_no_launcher_names_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"remuda\[mpi-local\]"):
        find_mpiexec(None, 3)


def test_a_given_launcher_is_taken_as_it_is() -> None:
    assert find_mpiexec("bash --host 'a b'", 3) == ["bash", "--host", "a b", "-n", "3"]
    with pytest.raises(ConfigError, match="no such command"):
        find_mpiexec("no-such-launcher -x", 3)


def test_what_may_be_restarted() -> None:
    assert may_restart(137, 0, 1)
    assert not may_restart(137, 1, 1)
    assert not may_restart(0, 0, 0)
    assert not may_restart(2, 0, 9)
    assert not may_restart(3, 0, 9)
