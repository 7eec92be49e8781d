"""The bookkeeping of `benchmarks/faults.py`, and that it strikes only its own."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import faults
from benchmarks.faults import descendants, plan, read_rows, table


def row(engine: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"run": 0, "engine": engine, "kind": kind, "lost": False, "changed": False} | {
        "recovered": None,
        **more,
    }


def test_the_table_counts_by_engine_and_kind() -> None:
    rows = [
        row("mpi", "worker", recovered=1.25),
        row("mpi", "worker", recovered=3.5, changed=True),
        row("mpi", "start", lost=True),
        row("local", "master", recovered=0.5),
    ]
    assert table(rows).splitlines()[2:] == [
        "| local | master | 1 | 0 | 0 | 0.5 s |",
        "| mpi | start | 1 | 1 | 0 | – |",
        "| mpi | worker | 2 | 0 | 1 | 3.5 s |",
        "| all | all | 4 | 1 | 1 | 3.5 s |",
    ]


def test_a_report_goes_on_after_a_line_that_was_cut_short(tmp_path: Path) -> None:
    report = tmp_path / "faults.jsonl"
    assert read_rows(report) == []
    whole = json.dumps(row("local", "master", run=7)) + "\n"
    report.write_text(whole + whole[:20])
    assert read_rows(report) == [row("local", "master", run=7)]
    assert report.read_text() == whole


@pytest.mark.parametrize("engine", faults.WORKERS)
def test_all_kinds_of_an_engine_are_planned_and_no_others(engine: str) -> None:
    rng = random.Random(1)
    plans = [plan(engine, rng) for _ in range(300)]
    assert all(plans)
    wanted = {"start", *faults.GOES_ON[engine], *faults.ENDS[engine]}
    assert {kind for planned in plans for kind in planned} == wanted


def test_only_what_descends_from_a_process_is_found() -> None:
    code = "import subprocess, sys; subprocess.run(['sleep', '60'])"
    other = subprocess.Popen(["sleep", "60"])
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        try:
            while not (below := descendants(parent.pid)):
                pass
            assert below[0] in descendants(os.getpid())
            assert other.pid not in below
            assert other.pid in descendants(os.getpid())
        finally:
            for pid in (*below, other.pid, parent.pid):
                os.kill(pid, 9)
            other.wait()
    assert not {*below, parent.pid, other.pid} & {*descendants(os.getpid())}


CAMPAIGN = """
import sys, json, torch
from pathlib import Path
from benchmarks import faults
faults.adopt_orphans()
folder, report = Path(sys.argv[1]), Path(sys.argv[2])
campaign = faults.Campaign(folder, report, 0)
faults.plan = lambda engine, rng: ["full disk", "start", "master"]
campaign.run(4, "local", "gap")
wanted = campaign._wanted["gap"]
campaign._wanted["gap"] = {**wanted, "rounds": 99}
faults.plan = lambda engine, rng: ["master"]
campaign.run(5, "local", "gap")
faults.LIMIT, faults.PATIENCE = 0.0, 0.0
campaign.run(6, "local", "gap")
assert faults.descendants(faults.os.getpid()) == []
"""


@pytest.mark.slow
def test_a_campaign_tells_kept_changed_and_lost_runs_apart(tmp_path: Path) -> None:
    report = tmp_path / "faults.jsonl"
    folder = tmp_path / "folder"
    folder.mkdir()
    root = Path(faults.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", CAMPAIGN, str(folder), str(report)],
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    rows = read_rows(report)
    kept = [one for one in rows if one["run"] == 4]
    assert {one["kind"] for one in kept} <= {"start", "master", "full disk"}
    assert "full disk" in {one["kind"] for one in kept}
    assert not any(one["lost"] or one["changed"] for one in kept)
    assert [(one["lost"], one["changed"]) for one in rows if one["run"] == 5] == [(False, True)]
    assert [(one["lost"], one["changed"]) for one in rows if one["run"] == 6] == [(True, False)]
    assert sorted(path.name for path in tmp_path.glob("faults-run-*")) == [
        "faults-run-5",
        "faults-run-6",
    ]
