"""The command line as users meet it: what is printed, the exit codes, what is left on disk."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from remuda.config import load_config, preset_names
from remuda.metrics import Scores
from remuda.parallel.protocol import Liveness, State, WorkerStatus
from remuda.runs.store import RunFolder
from tests import faults
from tests.tiny_runs import ROUNDS, Command, in_a_terminal, remuda, tiny, write_data

HEAVY = (
    *("torch", "numpy", "scipy", "sklearn", "matplotlib", "PIL"),
    *("yaml", "pydantic", "safetensors"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "images.npz")


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished run, and what its training printed."""
    folder = tmp_path_factory.mktemp("trained")
    code, output, errors = remuda(folder, "train", *tiny(data, folder / "run"))
    assert (code, errors) == (0, "")
    return folder / "run", output


# ---------------------------------------------------------------------------------- help


def test_help_is_quick_and_light() -> None:
    code = (
        "import sys, time\nstart = time.process_time()\n"
        "from remuda.cli import main\nsys.argv = ['remuda', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    code = end.code\n"
        f"loaded = [name for name in {HEAVY} if name in sys.modules]\n"
        "print(code, loaded, time.process_time() - start, sep='|', file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    exit_code, loaded, seconds = done.stderr.strip().split("|")
    assert exit_code == "0"
    assert loaded == "[]"
    assert float(seconds) < 2  # well under half a second; this machine may be busy
    shown = ("presets", "config", "train", "resume", "sample", "score", "runs")
    for command in (*shown, "gam", "ais", "tsne", "curves"):
        assert re.search(rf"\b{command}\b", done.stdout)


def test_the_installed_command_answers() -> None:
    command = Path(sys.executable).with_name("remuda")
    if not command.exists():
        pytest.skip("remuda is not installed beside this Python")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"remuda \d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize(
    "words", [["trian"], ["train", "--bogus"], ["sample"], ["sample", "x", "-n", "0"]]
)
def test_a_wrong_call_is_a_usage_error(words: list[str], tmp_path: Path) -> None:
    code, _, errors = remuda(tmp_path, *words)
    assert code == 2
    assert "Usage" in errors
    assert "Traceback" not in errors


# ---------------------------------------------------------------------------------- config


def test_presets_are_listed_one_line_each(tmp_path: Path) -> None:
    code, output, _ = remuda(tmp_path, "presets")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == preset_names()
    assert all(len(line.split()) > 5 for line in output.splitlines())


def test_a_printed_configuration_can_be_saved_and_used(tmp_path: Path) -> None:
    code, output, _ = remuda(tmp_path, "config", "cellular-mnist", "rounds=7", "grid=3x3")
    assert code == 0
    assert "# " in output
    (tmp_path / "my.yaml").write_text(output)
    wanted = load_config("cellular-mnist", ["rounds=7", "grid=3x3"])
    assert load_config(str(tmp_path / "my.yaml")) == wanted


BAD = {
    "unknown key": (["rouns=3"], "rouns=3: unknown key; did you mean rounds?"),
    "wrong type": (["rounds=many"], "rounds=many: not allowed; allowed: a whole number"),
    "empty grid": (["grid=0x3"], "grid.shape=0x3: not a grid"),
    "tournament": (["method.tournament_size=9"], "larger than the neighbourhood of 3"),
    "two sources": (["digits", "other"], "expected one preset or YAML file"),
    "no preset": (["quikstart"], "did you mean quickstart?"),
    "no data": (["data=/no/such.npz"], "data.source='/no/such.npz' is neither a data set"),
    "batch": (["training.batch_size=61"], "training.batch_size=61: larger than the 60 items"),
    "small share": (
        ["training.batch_size=40", "data.view=share", "data.share=0.5"],
        "larger than the 30 items that cell 0 sees",
    ),
    "two networks": (["network=dcgan"], "network.hidden=[8]: unknown key"),
    "bad file": (["data=bad.npz"], "bad.npz: damaged or of another kind"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_line_and_leaves_nothing_on_disk(
    case: str, tmp_path: Path, data: Path
) -> None:
    overrides, says = BAD[case]
    run = tmp_path / "deep" / "run"
    (tmp_path / "bad.npz").write_bytes(b"PK no zip")
    overrides = [word.replace("bad.npz", str(tmp_path / "bad.npz")) for word in overrides]
    base = tiny(data, run, "grid=2x2")
    words = base[1:] if case in ("two sources", "no preset") else base
    code, output, errors = remuda(tmp_path, "train", *words, *overrides)
    assert code == 2
    assert output == ""
    assert says in errors
    assert errors.startswith("remuda: ")
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / "deep").exists()


def test_the_default_folder_is_not_made_for_a_mistake(tmp_path: Path) -> None:
    code = "import os, sys; os.chdir(sys.argv.pop()); from remuda.cli import main; main()"
    words = ["train", "rounds=x", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------- train


def test_training_ends_with_scores_picture_and_three_commands(trained: tuple[Path, str]) -> None:
    run, output = trained
    lines = output.splitlines()
    starts = [
        next(place for place, line in enumerate(lines) if line.startswith(start))
        for start in ("quickstart: cellular on a 1x3 grid", "run folder", "round    1/3")
    ]
    starts += [
        lines.index(f"picture: {run / 'ensemble' / 'samples.png'}"),
        lines.index("try next:"),
    ]
    scores = [place for place, line in enumerate(lines) if line.startswith(("FID  ", "TVD "))]
    assert starts[:3] == sorted(starts[:3])
    assert len(scores) == 2
    assert starts[2] < scores[0] < scores[1] < starts[3] < starts[4]
    commands = lines[starts[4] + 1 :]
    assert len(commands) == 3
    assert all(re.match(r"  \S*remuda (sample|score|train) ", line) for line in commands)
    with Image.open(run / "ensemble" / "samples.png") as picture:
        assert picture.width > 400


def test_the_commands_it_suggests_work(trained: tuple[Path, str], tmp_path: Path) -> None:
    _, output = trained
    sample, score, train = (line.split() for line in output.splitlines()[-3:])
    code, _, errors = remuda(tmp_path, *sample[1:-1], str(tmp_path / sample[-1]))
    assert (code, errors) == (0, "")
    code, printed, _ = remuda(tmp_path, *score[1:], "-n", "20")
    assert code == 0
    assert printed.splitlines()[1].startswith("FID ")
    assert load_config(train[2], train[3:]).grid.shape == (3, 3)


def test_plain_lines_show_progress_without_a_terminal(trained: tuple[Path, str]) -> None:
    _, output = trained
    assert "\x1b" not in output
    for round in range(1, ROUNDS + 1):
        assert re.search(
            rf"^round +{round}/{ROUNDS}  FID +[\d.]+  loss G +-?[\d.]+ D +[\d.]+ +[\d,]+ images/s"
            r"  left \d+s$",
            output,
            re.MULTILINE,
        )


def test_training_ends_with_where_the_time_went(trained: tuple[Path, str]) -> None:
    _, output = trained
    table = output[output.index("time of all cells by routine") : output.index("picture:")]
    shares = [float(share) for share in re.findall(r" ([\d.]+)%", table)]
    assert 99 < sum(shares) < 101
    assert re.search(r"\btrain +[\d.]+s", table)
    assert re.search(r"^per cell, round [\d.]+ kB published, .* gathered, .* saved$", table, re.M)
    assert max(map(len, table.splitlines())) <= 80


def test_every_sheet_is_there(trained: tuple[Path, str]) -> None:
    run, _ = trained
    names = sorted(str(path.relative_to(run)) for path in (run / "samples").rglob("*.png"))
    assert names == [
        f"samples/round-00000{round}/{name}.png"
        for round in (2, 3)
        for name in ("cell-0000", "cell-0001", "cell-0002", "mixture")
    ]
    result = json.loads((run / "result.json").read_text())
    assert result["scores"]["samples"] == 20
    assert result["cell_rounds"] == 9
    assert {"train", "gather", "publish", "checkpoint", "other"} <= set(result["routines"])
    assert result["bytes"].keys() == {"published", "gathered", "saved"}
    assert all(moved["total"] > 0 for moved in result["bytes"].values())
    env = json.loads((run / "env.json").read_text())
    assert {"remuda", "torch", "python", "host", "revision", "threads", "data"} <= set(env)


def test_a_folder_with_odd_characters_is_shown_as_it_is(tmp_path: Path, data: Path) -> None:
    """Brackets are no markup, blanks are quoted for the shell."""
    run = tmp_path / "my run [red]"
    code, output, errors = remuda(
        tmp_path, "train", *tiny(data, run, "rounds=1", "score.extractor=none")
    )
    assert (code, errors) == (0, "")
    assert f"run folder {run}\n" in output
    assert f"sample '{run}' -n 100" in output
    assert "no extractor fits these data" in output
    code, output, _ = remuda(tmp_path, "runs", str(tmp_path))
    assert str(run) in output


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_says_how_to_go_on(
    number: signal.Signals, code: int, tmp_path: Path, data: Path
) -> None:
    run = tmp_path / "run"
    command = Command(tmp_path, "train", *tiny(data, run, "rounds=1000"))
    command.wait_for("round    1/1000")
    command.send(number)
    assert command.wait() == code
    errors = command.errors.read_text()
    assert re.fullmatch(
        r"remuda: interrupted; (\d+) of 1000 rounds are complete and saved\. Continue with:\n"
        rf"  \S*remuda resume {run}\n",
        errors,
    )
    state = remuda(tmp_path, "runs", str(tmp_path))[1]
    assert re.search(rf"{run} +interrupted +cellular +1x3 +\S+ +\d+/1000 +fid ", state)
    code, _, errors = remuda(tmp_path, "sample", str(run))
    assert code == 3
    assert f"{run}: the run is not finished; `remuda resume {run}` continues it" in errors


def test_an_error_that_wraps_the_interruption_is_still_one(tmp_path: Path, data: Path) -> None:
    """Libraries turn a KeyboardInterrupt into errors of their own; Pillow was seen to."""
    command = Command(
        tmp_path, "train", *tiny(data, tmp_path / "run"), fault=faults.interrupt_within_a_library
    )
    assert command.wait() == 130, command.said
    assert "rounds are complete and saved" in command.said
    assert "Traceback" not in command.said


# ---------------------------------------------------------------------------------- the live view


def test_a_narrow_terminal_gets_a_narrow_table(tmp_path: Path, data: Path) -> None:
    words = ["train", *tiny(data, tmp_path / "run", "training.batches_per_round=25")]
    code, screen = in_a_terminal(words, columns=60)
    assert code == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)
    assert re.search(r"2 +[1-3] +-?[\d.]+ +[\d.]+ +(minimax|heuristic) +[\d.]+", text)
    assert re.search(r"round [1-3]/3 .* left \d+s", text)
    assert "fitness" not in text
    assert "…" not in text


@pytest.mark.parametrize("columns", [80, 130])
def test_a_terminal_gets_a_live_table(columns: int, tmp_path: Path, data: Path) -> None:
    words = ["train", *tiny(data, tmp_path / "run", "training.batches_per_round=25")]
    code, screen = in_a_terminal(words, columns=columns)
    assert code == 0
    assert "\x1b[" in screen
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)
    for title in ("cell", "round", "loss", "fitness", "lr", "gene", "FID"):
        assert title in text
    assert re.search(r"round [1-3]/3", text)
    assert re.search(r"[\d,]+ images/s", text)
    assert re.search(r"left \d+s", text)
    place = r"2 \(0,2\)" if columns > 100 else "2"
    assert re.search(  # a cell: place, round, losses, fitness, learning rates, gene, score
        rf"{place} +[1-3] +-?[\d.]+ +[\d.]+ +[\d.-]+ +[\d.]+ +\d\.\de-\d\d +\d\.\de-\d\d"
        r" +(minimax|heuristic) +[\d.]+",
        text,
    )
    assert "…" not in text
    assert text.index("picture: ") < text.index("try next:")


def test_plain_can_be_asked_for_on_a_terminal(tmp_path: Path, data: Path) -> None:
    code, screen = in_a_terminal(["train", "--plain", *tiny(data, tmp_path / "run")])
    assert code == 0
    assert re.search(r"round +3/3  FID", screen)
    assert "loss gene" not in screen


def test_ctrl_c_on_a_terminal_leaves_it_usable(tmp_path: Path, data: Path) -> None:
    words = ["train", *tiny(data, tmp_path / "run", "rounds=1000")]
    code, screen = in_a_terminal(words, until="images/s", then=b"\x03")
    assert code == 130
    assert "Continue with:" in screen
    assert screen.rindex("\x1b[?25h") > screen.rindex("\x1b[?25l")  # the cursor is shown again
    assert "Traceback" not in screen


# ---------------------------------------------------------------------------------- the workers


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
    assert first == "round 1 of 9 is complete, term 2"
    assert line == "workers 1 working, 1 delayed"
    cells = [re.split(r"\s{2,}", row.strip()) for row in rows]
    # What was heard then is older by now.
    assert re.fullmatch(r"10\d\.\ds ago", cells[0].pop(5))
    assert cells[0] == ["1", "node-a", "17", "processing", "working", "0:2 1:1"]
    assert cells[1][-1] == "spare"
    assert "nobody is training here" in remuda(tmp_path, "status", str(folder.path))[1]


# ---------------------------------------------------------------------------------- results


def test_samples_become_a_picture_or_an_array(trained: tuple[Path, str], tmp_path: Path) -> None:
    run, _ = trained
    picture, array = tmp_path / "a.png", tmp_path / "new" / "a.npy"
    for output in (picture, array):
        code, said, _ = remuda(tmp_path, "sample", str(run), "-n", "9", "-o", str(output))
        assert (code, said) == (0, f"9 samples in {output}\n")
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
        "allowed: fid, fid_logits, is, tvd, accuracy, kid, pr, dc, modes\n"
    )


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
    (listed / "no-scores" / "result.json").write_text("{}")
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


def test_no_runs_says_how_to_start_one(tmp_path: Path) -> None:
    code, output, _ = remuda(tmp_path, "runs", str(tmp_path / "none"))
    assert code == 0
    assert re.match(rf"no runs in {tmp_path / 'none'}; start one with: \S*remuda train", output)


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = "from remuda.cli import main; main()"
    command = f"{sys.executable} -c '{code}' config | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith("name: quickstart")
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
