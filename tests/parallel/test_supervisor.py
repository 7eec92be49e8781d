"""The supervisor, with launchers that do what a lost job does."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from remuda.errors import STOPPED, ConfigError
from remuda.parallel import rank_watch, supervisor
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
    monkeypatch.setattr(supervisor, "START_SECONDS", 0.5)
    jobs = Jobs(tmp_path, "echo $$ > pid; exec sleep 100", FINISH)
    assert jobs.supervise() == 0
    assert is_gone(int((tmp_path / "pid").read_text()))


@pytest.mark.slow
def test_a_job_whose_master_falls_silent_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_SILENCE_SECONDS", 0.7)
    monkeypatch.setattr(supervisor, "START_SECONDS", 1.0)
    beat = "for i in 1 2 3 4 5 6; do touch run/.alive; sleep 0.3; done; touch beaten"
    jobs = Jobs(tmp_path, f"{beat}; exec sleep 100", FINISH)
    assert jobs.supervise() == 0
    assert (tmp_path / "beaten").exists(), "as long as it beats it is left alone"
    assert any("no sign of life for" in line for line in jobs.said)
    assert not (tmp_path / "run" / ".alive").exists()


# ---------------------------------------------------------------------------- while a job starts


def rank(number: int, command: str = "sleep 100", of: int = 2) -> str:
    """Shell for a process that a launcher has started as a rank; its number is in $rank_NUMBER."""
    variables = f"OMPI_COMM_WORLD_RANK={number} OMPI_COMM_WORLD_LOCAL_SIZE={of}"
    return f"{variables} {command} & rank_{number}=$!"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses while a job starts are noticed at once."""
    monkeypatch.setattr(supervisor, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(rank_watch, "LOSS_SECONDS", 0.3)
    monkeypatch.setattr(rank_watch, "_APPEAR_SECONDS", 0.3)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_lost_before_the_job_stands_has_the_job_started_again(
    victim: int, tmp_path: Path
) -> None:
    """The others wait inside MPI for good, and mpiexec says nothing."""
    lose = f"{rank(0)}; {rank(1)}; sleep 0.5; kill -9 $rank_{victim}; sleep 100"
    jobs = Jobs(tmp_path, lose, FINISH)
    assert jobs.supervise() == 0
    (line,) = jobs.said
    assert line.startswith(f"the MPI job was lost (rank {victim} ended while it started); starting")


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_rank_lost_before_it_was_seen_has_the_job_started_again(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, f"{rank(0)}; sleep 100", FINISH)
    assert jobs.supervise() == 0
    assert "1 of 2 ranks on this host never started" in jobs.said[0]


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_signs_of_life_while_data_are_fetched_do_not_hide_a_lost_rank(tmp_path: Path) -> None:
    """Not all workers are there before the first status."""
    beat = "while :; do touch run/.alive; sleep 0.1; done"
    jobs = Jobs(tmp_path, f"{rank(0)}; {rank(1)}; sleep 0.5; kill -9 $rank_1; {beat}", FINISH)
    assert jobs.supervise() == 0
    assert "rank 1 ended while it started" in jobs.said[0]


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_rank_lost_once_all_are_there_is_left_to_the_master(tmp_path: Path) -> None:
    train = f"{rank(0)}; {rank(1)}; touch run/status.json; sleep 0.5; kill -9 $rank_1; sleep 1.5"
    jobs = Jobs(tmp_path, f"{train}; {FINISH}")
    assert jobs.supervise() == 0
    assert jobs.said == []


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_ranks_that_leave_because_of_a_mistake_are_not_lost(tmp_path: Path) -> None:
    """One after the other, each within the time that a launcher has."""
    leave = "; ".join(rank(number, f"sleep 0.{3 + 2 * number}", of=3) for number in range(3))
    jobs = Jobs(tmp_path, f"{leave}; wait; exit 2")
    assert jobs.supervise() == 2
    assert jobs.said == []


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_what_ranks_start_themselves_may_end(tmp_path: Path) -> None:
    start = rank(0, "sh -c 'sleep 0.3; touch ended; sleep 100'", of=1)
    jobs = Jobs(tmp_path, f"{start}; while [ ! -f ended ]; do sleep 0.1; done; sleep 1; {FINISH}")
    assert jobs.supervise() == 0
    assert jobs.said == []


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_stop_while_the_job_starts_does_not_wait_for_ranks_that_it_ended(tmp_path: Path) -> None:
    """A rank that has no handler yet dies of the signal, and leaves the others inside MPI."""
    wait = "trap 'kill -9 $rank_1' USR1; touch ready; while :; do sleep 0.05; done"
    jobs = Jobs(tmp_path, f"{rank(0)}; {rank(1)}; {wait}")

    def send() -> None:
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=send)
    thread.start()
    start = time.monotonic()
    assert jobs.supervise() == 143
    thread.join()
    assert time.monotonic() - start < supervisor._GRACE_SECONDS / 2


@pytest.mark.slow
def test_the_launchers_files_go_with_the_job_though_it_is_killed(tmp_path: Path) -> None:
    note = 'echo "$PRTE_MCA_prte_local_tmpdir_base" > base; mkdir "$(cat base)"/ompi.$$'
    jobs = Jobs(tmp_path, f"{note}; kill -9 $$", FINISH)
    assert jobs.supervise() == 0
    base = Path((tmp_path / "base").read_text().strip())
    assert base.name.startswith(f"remuda-{os.getpid()}-")
    assert not base.exists()


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
