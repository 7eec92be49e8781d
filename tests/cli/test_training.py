"""Training from the command line: mistakes, what is printed, what is left on disk."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from remuda.config import load_config
from tests.cli.in_process import remuda
from tests.tiny_runs import ROUNDS, tiny

MISTAKES = {
    "unknown key": (["rouns=3"], "rouns=3: unknown key; did you mean rounds?"),
    "wrong type": (["rounds=many"], "rounds=many: not allowed; allowed: a whole number"),
    "empty grid": (["grid=0x3"], "grid.shape=0x3: not a grid"),
    "tournament": (["method.tournament_size=9"], "larger than the neighbourhood of 3"),
    "two sources": (["digits", "other"], "expected one preset or YAML file"),
    "no preset": (["quikstart"], "did you mean quickstart?"),
    "no file": (["missing.yaml"], "missing.yaml: neither a preset nor a file"),
    "no data": (["data=/no/such.npz"], "data.source='/no/such.npz' is neither a data set"),
    "batch": (["training.batch_size=61"], "training.batch_size=61: larger than the 60 items"),
    "small share": (
        ["training.batch_size=40", "data.view=share", "data.share=0.5"],
        "larger than the 30 items that cell 0 sees",
    ),
    "two networks": (["network=dcgan"], "network.hidden=[8]: unknown key"),
    "bad file": (["data=bad.npz"], "bad.npz: damaged or in another format"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing_on_disk(
    case: str, tmp_path: Path, data: Path
) -> None:
    overrides, message = MISTAKES[case]
    run = tmp_path / "deep" / "run"
    (tmp_path / "bad.npz").write_bytes(b"PK no zip")
    arguments = tiny(data, run, "grid=2x2")
    if case in ("two sources", "no preset", "no file"):
        del arguments[0]  # the preset of the tiny run
    code, output, errors = remuda(tmp_path, "train", *arguments, *overrides)
    assert (code, output) == (2, "")
    assert message in errors
    assert errors.startswith("remuda: ")
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / "deep").exists()


def test_the_default_folder_is_not_made_for_a_mistake(tmp_path: Path) -> None:
    assert remuda(tmp_path, "train", "rounds=x")[0] == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", [[], ["--stuck", "7"]])
def test_a_limit_for_stuck_workers_goes_on_to_the_ranks(
    limit: list[str], tmp_path: Path, data: Path
) -> None:
    """At the start of a job, and when it is started again."""
    launcher = tmp_path / "launcher"
    run = tmp_path / "run"
    launcher.write_text(
        f'echo "ranks: $*" >> {tmp_path}/words\n'
        f"[ -e {run}/config.yaml ] && exit 2\ntouch {run}/config.yaml; exit 9\n"
    )
    mpi = ["--engine", "mpi", "--workers", "1", "--mpiexec", f"bash {launcher}"]
    assert remuda(tmp_path, "train", *tiny(data, run), *mpi, *limit)[0] == 2
    train, resume = (tmp_path / "words").read_text().splitlines()
    assert " train " in train
    assert " resume " in resume
    for words in (train, resume):
        assert ("--stuck 7" in words) == bool(limit)


def test_a_missing_run_cannot_be_resumed(tmp_path: Path) -> None:
    code, output, errors = remuda(tmp_path, "resume", "missing")
    assert (code, output) == (3, "")
    assert errors == "remuda: missing: not a run folder: no such folder; `remuda runs` lists runs\n"


def test_a_finished_run_has_nothing_to_resume(trained: tuple[Path, str], tmp_path: Path) -> None:
    code, output, errors = remuda(tmp_path, "resume", str(trained[0]))
    assert (code, errors) == (0, "")
    assert "is finished; nothing to resume" in output


def test_training_ends_with_scores_picture_and_three_commands(trained: tuple[Path, str]) -> None:
    run, output = trained
    lines = output.splitlines()
    starts = [
        next(place for place, line in enumerate(lines) if line.startswith(start))
        for start in ("cellular-digits: cellular on a 1x3 grid", "run folder", "round    1/3")
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
    again = load_config(train[2], train[3:])
    first = load_config(str(trained[0] / "config.yaml"), [])
    assert again.seed == first.seed + 1
    assert again.run.dir == f"{trained[0]}-seed-{again.seed}"
    unchanged = {"seed": first.seed, "run": first.run}
    assert again.model_copy(update=unchanged) == first


def test_plain_lines_show_progress_without_a_terminal(trained: tuple[Path, str]) -> None:
    _, output = trained
    assert "\x1b" not in output
    for round in range(1, ROUNDS + 1):
        assert re.search(
            rf"^round +{round}/{ROUNDS}  FID +[\d.]+  (founders G \d D \d  )?"
            r"loss G +-?[\d.]+ D +[\d.]+ +[\d,]+ images/s  left \d+s$",
            output,
            re.MULTILINE,
        )


def test_training_ends_with_where_the_time_went(trained: tuple[Path, str]) -> None:
    _, output = trained
    table = output[
        output.index("time by routine, summed over all cells") : output.index("picture:")
    ]
    shares = [float(share) for share in re.findall(r" ([\d.]+)%", table)]
    assert 99 < sum(shares) < 101
    assert re.search(r"\btrain +[\d.]+s", table)
    assert re.search(
        r"^per cell and round: [\d.]+ kB published, .* gathered, .* saved$", table, re.M
    )
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
    """Brackets are not markup, and blanks are quoted for the shell."""
    run = tmp_path / "my run [red]"
    code, output, errors = remuda(
        tmp_path, "train", *tiny(data, run, "rounds=1", "score.extractor=none")
    )
    assert (code, errors) == (0, "")
    assert f"run folder {run}\n" in output
    assert f"sample '{run}' -n 100" in output
    assert "not scored: score.extractor=none" in output
    code, output, _ = remuda(tmp_path, "runs", str(tmp_path))
    assert str(run) in output
