"""What users do with runs: status, sample, score, runs."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from remuda.metrics import Scores
from remuda.parallel.protocol import Liveness, State, WorkerStatus
from remuda.runs.store import RunFolder
from tests.cli.in_process import remuda


def test_status_shows_the_workers_of_a_run_that_another_process_trains(
    trained: tuple[Path, str], tmp_path: Path
) -> None:
    shutil.copytree(trained[0], tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    workers = [
        WorkerStatus(
            1, "node-a", 17, State.PROCESSING, Liveness.WORKING, 0.5, (0, 1), {0: 2, 1: 1}
        ),
        WorkerStatus(2, "node-b", 18, State.INACTIVE, Liveness.DELAYED, 6.0, (), {}),
    ]
    with folder.lock():
        status = {"time": time.time() - 100, "rounds": 9, "completed": 1, "epoch": 2}
        folder.write_status({**status, "workers": [one.to_json() for one in workers]})
        code, output, _ = remuda(tmp_path, "status", str(folder.path))
    assert code == 0
    first, line, _, *rows = output.splitlines()
    assert first == "1 of 9 rounds complete, term 2"
    assert line == "workers: 1 working, 1 delayed"
    cells = [re.split(r"\s{2,}", row.strip()) for row in rows]
    # The status was written 100 s ago.
    assert re.fullmatch(r"10\d\.\ds ago", cells[0].pop(5))
    assert cells[0] == ["1", "node-a", "17", "processing", "working", "0:2 1:1"]
    assert cells[1][-1] == "spare"
    assert "is not being trained now" in remuda(tmp_path, "status", str(folder.path))[1]


def test_samples_become_a_picture_or_an_array(trained: tuple[Path, str], tmp_path: Path) -> None:
    run, _ = trained
    picture, array = tmp_path / "a.png", tmp_path / "new" / "a.npy"
    for output in (picture, array):
        code, printed, _ = remuda(tmp_path, "sample", str(run), "-n", "9", "-o", str(output))
        assert (code, printed) == (0, f"9 samples in {output}\n")
    with Image.open(picture) as image:
        assert image.size == (3 * 58 + 2, 3 * 58 + 2)
    samples = np.load(array, allow_pickle=False)
    assert samples.shape == (9, 1, 28, 28)
    remuda(tmp_path, "sample", str(run), "-n", "9", "--seed", "1", "-o", str(array))
    assert not np.array_equal(np.load(array, allow_pickle=False), samples)


def test_what_cannot_be_sampled_is_one_line(trained: tuple[Path, str], tmp_path: Path) -> None:
    run, _ = trained
    code, _, errors = remuda(tmp_path, "sample", str(run), "-o", str(tmp_path / "a.gif"))
    assert (code, len(errors.splitlines())) == (2, 1)
    assert "unknown kind of file; allowed: .png, .npy" in errors
    missing = tmp_path / "missing"
    code, _, errors = remuda(tmp_path, "sample", str(missing))
    assert (code, len(errors.splitlines())) == (3, 1)
    assert f"{missing}: not a run folder: no such folder; `remuda runs` lists runs" in errors
    (tmp_path / "file").touch()
    code, _, errors = remuda(tmp_path, "sample", str(run), "-o", str(tmp_path / "file" / "a.png"))
    assert (code, len(errors.splitlines())) == (3, 1)


def test_scores_can_be_chosen(trained: tuple[Path, str], tmp_path: Path) -> None:
    run, _ = trained
    code, output, _ = remuda(tmp_path, "score", str(run), "tvd", "fid", "-n", "50")
    assert code == 0
    lines = output.splitlines()
    assert lines[0].startswith("scores by digits-cnn-1, inputs in [-1, 1], 50 samples against 60")
    titles = [re.split(r"  +|(?<=score) |(?<=covered) ", line)[0] for line in lines[1:]]
    assert titles[0] == "TVD"
    assert titles[-1] == "FID"
    assert "FID (logits)" not in output
    code, output, _ = remuda(tmp_path, "score", str(run), "-n", "20", "--real", "30")
    assert code == 0
    assert "20 samples against 30 of 60 training images" in output
    for title in ("FID ", "FID (logits)", "inception score", "TVD", "classes covered"):
        assert title in output
    code, output, errors = remuda(tmp_path, "score", str(run), "fidd")
    assert (code, output) == (2, "")
    assert errors == (
        "remuda: fidd: unknown metric; did you mean fid? "
        "allowed: fid, fid_logits, is, tvd, accuracy, kid, pr, dc, modes, memorisation, tstr\n"
    )


def test_the_closest_pairs_become_a_picture(trained: tuple[Path, str], tmp_path: Path) -> None:
    run, picture = trained[0], str(tmp_path / "pairs.png")
    code, _, errors = remuda(tmp_path, "score", str(run), "memorisation", "--pairs", picture)
    assert code == 2
    assert errors.startswith("remuda: memorisation: needs items that no cell trained on")
    assert errors.endswith("allowed here: fid, fid_logits, is, tvd, kid, pr, dc\n")
    held = tmp_path / "held"
    shutil.copytree(run, held)
    config = (held / "config.yaml").read_text()
    assert "  validation: 0" in config
    (held / "config.yaml").write_text(config.replace("  validation: 0", "  validation: 5"))
    code, output, errors = remuda(tmp_path, "score", str(held), "memorisation", "--pairs", picture)
    assert code == 0, errors
    assert "memorisation    " in output
    assert output.endswith(f"closest pairs: {picture}\n")
    assert Path(picture).read_bytes().startswith(b"\x89PNG")


def test_pairs_that_cannot_be_drawn_are_one_line(trained: tuple[Path, str], tmp_path: Path) -> None:
    run = trained[0]
    for words, says in (
        (["fid", "--pairs", "p.png"], "--pairs=p.png: draws what the metric memorisation finds"),
        (
            ["memorisation", "--pairs", "p.jpg"],
            "--pairs=p.jpg: unknown kind of file; allowed: .png",
        ),
        (["--reference", "tests"], "--reference=tests: unknown; did you mean test?"),
        (["--reference", "test"], "data.reference=test: there are no items of"),
    ):
        code, output, errors = remuda(tmp_path, "score", str(run), *words)
        assert (code, output) == (2, "")
        assert errors.startswith(f"remuda: {says}")
        assert errors.count("\n") == 1
    points = trained_points(tmp_path)
    words = ["memorisation", "--pairs", "p.png"]
    code, _, errors = remuda(tmp_path, "score", str(points), *words)
    assert code == 2
    assert errors.startswith(f"remuda: --pairs=p.png: draws images, and {points} generates points")


def trained_points(folder: Path) -> Path:
    words = ["data=ring8", "rounds=1", "grid=1x1", "method=independent", "run.dir=points"]
    words += ["network={family: mlp, latent: 2, hidden: [4]}", "score.final_samples=20"]
    assert remuda(folder, "train", *words)[0] == 0
    return folder / "points"


def test_lines_of_scores_can_be_chosen() -> None:
    values = {"fid": 1.0, "fid_logits": 2.0, "is": 3.0, "is_std": 0.5, "tvd": 0.25}
    scores = Scores({**values, "classes_covered": 2.0}, "net", "[-1, 1]", 4, 9, (3, 1))
    header = "scores by net, inputs in [-1, 1], 4 samples against 9 real images"
    assert scores.lines(["is", "fid"]) == [
        header,
        "inception score 3.000 ± 0.500",
        "FID             1.000",
    ]
    assert scores.lines([]) == [header]
    assert scores.lines() == scores.lines(["fid", "fid_logits", "is", "tvd"])
    assert len(scores.lines(["fid", "fid"])) == 2


def test_runs_are_listed_whatever_their_state(trained: tuple[Path, str], tmp_path: Path) -> None:
    run, _ = trained
    listed = tmp_path / "runs"
    states = ("finished", "interrupted", "bad config", "bad result", "odd events", "no scores")
    for state in states:
        folder = listed / state.replace(" ", "-")
        folder.mkdir(parents=True)
        for name in ("config.yaml", "events.jsonl", "result.json"):
            (folder / name).write_bytes((run / name).read_bytes())
    (listed / "interrupted" / "result.json").unlink()
    (listed / "bad-config" / "config.yaml").write_text("rounds: '[/b]'\nrun: 5\n")
    (listed / "bad-result" / "result.json").write_text('{"scores"')
    (listed / "odd-events" / "events.jsonl").write_text('{"event": "population"}\n')
    (listed / "no-scores" / "result.json").write_text('{"rounds": 3}')
    (listed / "no-run").mkdir()
    code, output, errors = remuda(tmp_path, "runs", str(listed))
    assert (code, errors) == (0, "")
    rows = {line.split()[0]: line for line in output.splitlines()[1:]}
    assert len(rows) == len(states)
    assert re.search(
        r"finished +cellular +1x3 +\S+images.npz +3/3 +fid \d", rows[str(listed / "finished")]
    )
    assert re.search(r"interrupted +cellular .* 3/3", rows[str(listed / "interrupted")])
    assert "damaged" in rows[str(listed / "bad-config")]
    assert "[/b]" in rows[str(listed / "bad-config")]
    assert "damaged" in rows[str(listed / "bad-result")]
    assert "damaged" in rows[str(listed / "odd-events")]
    assert "finished" in rows[str(listed / "no-scores")]


DEEP = "[" * 100_000
HOSTILE: dict[str, tuple[str, str | None, str]] = {
    "deep-result": ("result.json", f'{{"scores": {DEEP}', "recursion limit"),
    "deep-config": ("config.yaml", f"a: {DEEP}", "nested more than 30 times"),
    "laughing-config": ("config.yaml", "a: &a [x]\nb: [*a, *a]\n", "anchors and aliases"),
    "huge-grid": ("config.yaml", "grid: 100000x100000\n", "has 10,000,000,000 cells"),
    "digits-in-result": ("result.json", f'{{"rounds": {"9" * 6000}}}', "number out of range"),
    "digits-in-config": ("config.yaml", f"seed: {'9' * 6000}", "seed=inf: not allowed"),
    "round-of-text": ("events.jsonl", '{"event": "population", "round": "abc"}\n', "round='abc'"),
    "score-of-text": (
        *("events.jsonl", '{"event": "population", "round": 1, "score": []}\n'),
        "line 1: not an event: population.score=[]",
    ),
    "wrong-result": ("result.json", '{"scores": {"values": {"fid": "x"}}}', "scores.values.fid"),
    "huge-values": ("result.json", f'{{"scores": {{"values": {{"fid": {10**4000}}}}}}}', "fid"),
    "piped-result": ("result.json", None, "is not a regular file"),
    "piped-events": ("events.jsonl", None, "is not a regular file"),
    "piped-config": ("config.yaml", None, "is not a regular file"),
}


def test_one_hostile_folder_does_not_hide_the_others(
    trained: tuple[Path, str], tmp_path: Path
) -> None:
    run, _ = trained
    listed = tmp_path / "runs"
    for name in ("sound", *HOSTILE, "new\nline \x1b[31m", os.fsdecode(b"not-\xff-utf8")):
        folder = listed / name
        folder.mkdir(parents=True)
        for file in ("config.yaml", "events.jsonl", "result.json"):
            (folder / file).write_bytes((run / file).read_bytes())
    for name, (file, content, _) in HOSTILE.items():
        if content is None:
            (listed / name / file).unlink()
            os.mkfifo(listed / name / file)
        else:
            (listed / name / file).write_text(content)
    with (listed / "sound" / "events.jsonl").open("a") as events:
        events.write("not an event at all\n")
    for name in ("huge-file", "huge-config"):
        shutil.copytree(listed / "sound", listed / name)
        file = "result.json" if name == "huge-file" else "config.yaml"
        with (listed / name / file).open("wb") as empty:
            empty.truncate(10**12)
    (listed / "loop").symlink_to("loop")
    code, output, errors = remuda(tmp_path, "runs", str(listed))
    assert (code, errors) == (0, "")
    rows = {line.removeprefix(f"{listed}/"): line for line in output.splitlines()[1:]}
    found = {name.split("  ")[0]: row for name, row in rows.items()}
    for name, (_, _, says) in HOSTILE.items():
        row = next(row for start, row in found.items() if start.split(" ")[0] == name)
        assert re.search(rf"{name} +damaged .*{re.escape(says)}", row), row
    for name in ("huge-file", "huge-config"):
        assert re.search(rf"{name} +damaged +.*1,?000", output)
    for name in ("sound", r"new\nline \x1b[31m", r"not-\udcff-utf8"):
        assert re.search(rf"{re.escape(name)} +finished +cellular ", output), output
    assert len(rows) == len(HOSTILE) + 5 + 1
    assert re.search("loop +damaged .*loop/config.yaml: cannot be read: is a link", output)


@pytest.mark.parametrize("command", ["sample", "score", "resume", "status", "gam", "curves"])
def test_commands_on_one_hostile_run_end_in_one_line(
    command: str, trained: tuple[Path, str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained[0], run)
    words = [command, str(run), *([str(trained[0])] if command == "gam" else [])]
    for name, (file, content, _) in HOSTILE.items():
        shutil.copy(trained[0] / "config.yaml", run)
        shutil.copy(trained[0] / "result.json", run)
        shutil.copy(trained[0] / "events.jsonl", run)
        (run / file).unlink()
        if content is None:
            os.mkfifo(run / file)
        else:
            (run / file).write_text(content)
        code, _, errors = remuda(tmp_path, *words)
        if code:
            assert code in (2, 3), (name, errors)
            assert len(errors.splitlines()) == 1, (name, errors)
            assert errors.startswith("remuda: "), (name, errors)
        else:
            assert errors == "", (name, errors)
        (run / file).unlink()


def test_no_runs_says_how_to_start_one(tmp_path: Path) -> None:
    code, output, _ = remuda(tmp_path, "runs", str(tmp_path / "none"))
    assert code == 0
    assert re.match(rf"no runs in {tmp_path / 'none'}; start one with: \S*remuda train", output)
