"""Who carries out which job, what happens when a process dies, and how long the rest takes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from remuda.compare.jobs import Job
from remuda.compare.machine import IdleCores
from remuda.compare.runner import ATTEMPTS, Progress, Runner
from remuda.config import load_config

CONFIG = load_config("cellular-digits", ["rounds=3"])
# Speaks as a real process does, but trains nothing; the folder's name says what happens to it.
PROGRAM = """
import json, os, sys, time
from pathlib import Path
for line in sys.stdin:
    path = Path(json.loads(line)["path"])
    tried = path.with_suffix(".tries")
    tries = int(tried.read_text()) + 1 if tried.exists() else 1
    tried.write_text(str(tries))
    if path.name == "chatty":
        print("a banner", "[1]", '"text"', '{"other": 1}', sep="\\n", flush=True)
    for round in range(4):
        print(json.dumps({"round": round}), flush=True)
        if round == 2 and (path.name == "dies" or (path.name == "dies-once" and tries == 1)):
            os.kill(os.getpid(), 9)
        if path.name == "slow":
            time.sleep(30)
    path.with_suffix(".by").write_text(str(os.getpid()))
    if path.name == "fails":
        print(json.dumps({"failed": "no such thing"}), flush=True)
    else:
        print(json.dumps({"done": True}), flush=True)
        print(json.dumps({"round": 9}), flush=True)
"""


def runner(folder: Path, *names: str, at_once: int = 1) -> Runner:
    jobs = [Job("arm", seed, folder / name, CONFIG) for seed, name in enumerate(names)]
    program = (sys.executable, "-c", PROGRAM)
    return Runner(jobs, folder / "log.txt", at_once=at_once, program=program)


def names(jobs: object) -> set[str]:
    assert isinstance(jobs, (set, dict))
    return {job.path.name for job in jobs}


def test_one_process_carries_out_job_after_job(tmp_path: Path) -> None:
    found = runner(tmp_path, "a", "b", "c")
    found.run()
    assert names(found.progress.finished) == {"a", "b", "c"}
    assert len({path.read_text() for path in tmp_path.glob("*.by")}) == 1
    assert found.progress.share == 1.0


def test_a_job_whose_process_dies_is_taken_up_again(tmp_path: Path) -> None:
    found = runner(tmp_path, "dies-once", "b")
    found.run()
    assert names(found.progress.finished) == {"dies-once", "b"}
    assert (tmp_path / "dies-once.tries").read_text() == "2"


def test_a_job_that_kills_its_process_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    found = runner(tmp_path, "dies", "fails", "b")
    found.run()
    assert names(found.progress.finished) == {"b"}
    errors = {job.path.name: error for job, error in found.progress.failed.items()}
    assert errors["fails"] == "no such thing"
    assert errors["dies"].startswith(f"its process died {ATTEMPTS} times")
    assert (tmp_path / "dies.tries").read_text() == str(ATTEMPTS)


def test_lines_that_are_no_answers_are_ignored(tmp_path: Path) -> None:
    found = runner(tmp_path, "chatty", "b")
    found.run()
    assert names(found.progress.finished) == {"chatty", "b"}


def test_every_job_that_is_over_is_told_once(tmp_path: Path) -> None:
    told: list[str] = []
    found = runner(tmp_path, "a", "fails", "dies-once")
    found._over = lambda job: told.append(job.path.name)
    found.run()
    assert sorted(told) == ["a", "dies-once", "fails"]


def test_an_interrupted_runner_leaves_no_process_behind(tmp_path: Path) -> None:
    found = runner(tmp_path, "slow")

    def interrupt(progress: Progress) -> None:
        if progress.rounds:
            raise KeyboardInterrupt

    found._changed = interrupt
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        found.run()
    assert time.monotonic() - started < 20
    assert all(worker._process.returncode is not None for worker in found._workers)


def test_the_time_left_follows_from_the_pace_of_each_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("remuda.compare.runner.time.monotonic", lambda: now[0])
    quick, slow = Job("quick", 0, Path("q"), CONFIG), Job("slow", 0, Path("s"), CONFIG)
    more = Job("slow", 1, Path("t"), CONFIG)
    progress = Progress([quick, slow, more], running=[quick, slow])
    assert progress.seconds_left() is None
    for job in (quick, slow):
        progress.advance(job, 0)
    now[0] = 2.0
    progress.advance(quick, 1)
    now[0] = 10.0
    progress.advance(slow, 1)
    # 2 rounds of 2 s, and 2 + 3 of 10 s, two at a time.
    assert progress.seconds_left() == pytest.approx((2 * 2 + 5 * 10) / 2)
    assert progress.share == pytest.approx(2 / 9)


def test_idle_cores_are_read_from_the_ticks_between_two_looks(tmp_path: Path) -> None:
    stat = tmp_path / "stat"

    def ticks(busy: int, idle: int) -> None:
        stat.write_text(f"cpu {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 0\ncpu1 0\nintr 5\n")

    ticks(100, 100)
    cores = IdleCores(stat)
    ticks(110, 130)  # of 40 ticks on two cores, 30 were idle
    assert cores.look() == pytest.approx(1.5)
    ticks(130, 130)
    assert cores.look() == 0.0


def test_where_nothing_is_known_of_the_cores_all_count_as_idle(tmp_path: Path) -> None:
    assert IdleCores(tmp_path / "none").look() >= 1.0


def test_a_job_takes_as_many_cores_as_its_threads_and_workers() -> None:
    threads = load_config("cellular-digits", ["threads=2"])
    assert Job("a", 0, Path("x"), CONFIG).cores == 1
    assert Job("a", 0, Path("x"), threads).cores == 2
    assert Job("a", 0, Path("x"), threads, engine="process", workers=3).cores == 6
    assert Job("a", 0, Path("x"), CONFIG, engine="auto").cores >= 1
