"""The commands as users meet them: what they print, the pictures they leave, their mistakes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from remuda.config import load_config
from remuda.parallel import training
from tests.cli.in_process import remuda
from tests.populations import points_run

pytestmark = pytest.mark.slow


def test_gam_prints_the_matrix_and_the_table(alone: Path, swapped: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "battle.png"
    arguments = ["gam", str(alone), str(swapped), "-n", "1000", "-o", str(output)]
    code, printed, errors = remuda(tmp_path, *arguments)
    assert (code, errors) == (0, "")
    lines = printed.splitlines()
    assert lines[1].split() == ["alone:0", "alone:1", "swapped:0", "swapped:1"]
    assert re.fullmatch(r"alone:0 +\(\d\.\d{3}\)( +\d\.\d{3}){3}", lines[2])
    table = next(place for place, line in enumerate(lines) if line.startswith("run "))
    for place, name in ((table + 1, "alone"), (table + 2, "swapped")):
        span = r"\d\.\d{3}–\d\.\d{3}"
        assert re.fullmatch(rf"{name} +2 +{span} +{span} +\d\.\d{{3}} \d\.\d{{3}}", lines[place])
    assert lines[table + 3].startswith("judges not to be trusted")
    assert re.fullmatch(
        r"swapped beside alone: (strongly helps|helps|does not help)", lines[table + 4]
    )
    assert re.fullmatch(r"of 2 judges of both, [0-2] call more of swapped real", lines[table + 5])
    assert re.search(r"r_test \S+, r_sample \S+: (a tie|\S+ wins)", printed)
    assert lines[-1] == f"picture: {output}"
    with Image.open(output) as image:
        assert image.width > 400


def test_gam_with_judges_of_a_third_run_says_whose_they_are(
    alone: Path, swapped: Path, runs: Path, tmp_path: Path
) -> None:
    third = points_run(runs / "judges", "method=independent", "seed=78")
    arguments = ["gam", str(alone), str(swapped), "--judges", str(third), "-n", "1000"]
    code, printed, errors = remuda(tmp_path, *arguments)
    assert (code, errors) == (0, "")
    assert re.search(r"\njudges:0( +\d\.\d{3}){4}\n", printed)
    assert "average and worst over the judges, which are those of judges\n" in printed
    assert "r_test" not in printed
    assert (tmp_path / "battle.png").is_file()


def test_gam_without_judges_says_so(runs: Path, swapped: Path, tmp_path: Path) -> None:
    tuned = points_run(runs / "judgeless", "method=gap", f"init_from=[{swapped}]", "rounds=1")
    arguments = ["gam", str(swapped), str(tuned), "-n", "1000", "-o", str(tmp_path / "b.png")]
    code, printed, _ = remuda(tmp_path, *arguments)
    assert code == 0
    assert "nan–nan" in printed
    assert "every judge has met the generator" in printed


def test_ais_prints_nats_and_the_gap(alone: Path, tmp_path: Path) -> None:
    arguments = ["ais", str(alone), "-n", "3", "--steps", "5", "--chains", "2", "--simulated", "2"]
    code, printed, errors = remuda(tmp_path, *arguments, "--variance", "0.1")
    assert code == 0
    assert re.search(r"^about \d+s$", errors, re.MULTILINE)
    header, value, gap = printed.splitlines()
    assert "3 held-out items of ring8, observation variance 0.1, 2 chains, 5 temperatures" in header
    assert re.fullmatch(r"log p\(x\) +-?\d+\.\d\d ± \d+\.\d\d nats", value)
    assert re.fullmatch(r"BDMC gap +-?\d+\.\d\d nats, on data drawn from the model", gap)


def test_curves_leave_out_a_run_that_cannot_be_read(swapped: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd $x_{$ \x1b[31m"
    shutil.copytree(swapped, odd)
    code, printed, errors = remuda(tmp_path, "curves", str(swapped), str(odd), "-o", "all.png")
    assert (code, errors) == (0, "")
    assert r"odd $x_{$ \x1b[31m" in printed
    (odd / "events.jsonl").write_text('{"event": "round", "round": "abc", "cell": 0}\n')
    code, printed, errors = remuda(tmp_path, "curves", str(swapped), str(odd), "-o", "one.png")
    assert (code, errors) == (0, "")
    assert re.search(
        r"odd .*\\x1b\[31m is left out: .*line 1: not an event: round.round='abc'", printed
    )
    assert (tmp_path / "one.png").exists()


def test_curves_and_overlays_leave_pictures(alone: Path, swapped: Path, tmp_path: Path) -> None:
    for command in ("curves", "tsne"):
        output = tmp_path / f"{command}.png"
        arguments = [command, str(alone), str(swapped), "-o", str(output)]
        code, printed, errors = remuda(tmp_path, *arguments)
        assert (code, errors) == (0, "")
        assert f"picture: {output}" in printed
        if command == "curves":
            assert re.search(
                r"swapped +2 +2( +\d\.\d{4}){4} +[+-]\d\.\d{4} +\d\.\d{4} \d\.\d{4}", printed
            )
        with Image.open(output) as image:
            assert image.width > 400


def test_points_are_scored_by_their_modes(swapped: Path, tmp_path: Path) -> None:
    result = json.loads((swapped / "result.json").read_text())
    assert result["scores"]["modes"] == 8
    assert result["scores"]["samples"] == 200
    assert sum(result["scores"]["mode_histogram"]) <= 200
    assert [cell["modes"] for cell in result["modes_by_cell"].values()] == [8, 8]
    code, printed, errors = remuda(tmp_path, "score", str(swapped), "-n", "50")
    assert (code, errors) == (0, "")
    lines = printed.splitlines()
    assert lines[0] == "scores of 50 samples against 8 known modes, within 3 standard deviations"
    assert re.fullmatch(r"cells alone +cover \d \d", lines[-1])
    code, printed, _ = remuda(tmp_path, "runs", str(swapped.parent))
    assert re.search(r"swapped +finished +gap +1x2 +ring8 +2/2 +modes \d/8", printed)


def test_classes_are_drawn_beside_the_scores(images: Path, tmp_path: Path) -> None:
    output = tmp_path / "classes.png"
    arguments = ["score", str(images), "tvd", "-n", "20", "-o", str(output)]
    code, printed, errors = remuda(tmp_path, *arguments)
    assert (code, errors) == (0, "")
    assert "TVD" in printed
    with Image.open(output) as image:
        assert image.width > image.height


MISTAKES = {
    "one run": (["gam", "ALONE"], "1 run: a battle needs judges from elsewhere"),
    "twice": (["gam", "ALONE", "ALONE"], "allowed: every run once"),
    "exclusion": (
        ["gam", "ALONE", "SWAPPED", "--exclusion", "blok"],
        "--exclusion=blok: unknown; did you mean block? allowed: seen, block",
    ),
    "kind": (["gam", "ALONE", "SWAPPED", "-o", "b.gif"], "--output=b.gif: unknown kind of file"),
    "variance": (["ais", "ALONE", "--variance", "0"], "variance=0.0: not allowed"),
    "metric": (
        ["score", "SWAPPED", "fid"],
        "fid: needs images, and an extractor that fits",
    ),
    "no costs": (["curves", "IMAGES"], "no discriminator costs in its events"),
    "shapes": (["tsne", "ALONE", "IMAGES"], "allowed: runs on items of one shape"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(
    case: str, alone: Path, swapped: Path, images: Path, tmp_path: Path
) -> None:
    arguments, message = MISTAKES[case]
    places = {"ALONE": alone, "SWAPPED": swapped, "IMAGES": images}
    code, _, errors = remuda(
        tmp_path, *(str(places.get(argument, argument)) for argument in arguments)
    )
    assert code == 2
    assert message in errors
    assert len(errors.splitlines()) == 1
    assert list(tmp_path.glob("*.png")) == []


@pytest.mark.parametrize("command", ["gam", "ais"])
def test_conditional_networks_are_refused(command: str, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "told.npz", x=images, y=np.arange(40) % 2)
    network = (
        "network={family: class_dcgan, width: 8, latent: 2, condition: projection, classes: 2}"
    )
    run, other = tmp_path / "told", tmp_path / "other"
    own = [f"data={tmp_path / 'told.npz'}", network, "method=independent", "grid=1x1", "rounds=1"]
    own += ["training.batch_size=10", "score.extractor=none", "run.sheet_every=0"]
    for path in (run, other)[: 2 if command == "gam" else 1]:
        training.train(load_config("cellular-digits", [*own, f"run.dir={path}"]))
    paths = [str(run), *([str(other)] if command == "gam" else [])]
    code, _, errors = remuda(tmp_path, command, *paths)
    assert code == 2
    assert "conditional" in errors
    assert "Traceback" not in errors
