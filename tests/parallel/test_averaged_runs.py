"""Runs with averaged generators: on either engine, killed and resumed, looked at and gone on with.

Same bits, and what is judged and kept is the average.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from remuda import load
from remuda.config import load_config
from remuda.errors import ConfigError, StoreError
from remuda.gan.average import STEPS
from remuda.gan.parcels import AVERAGE, GENERATOR, Parcel, strip_prefix
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.runs.initial import initial_parcels
from remuda.runs.population import load_population
from remuda.runs.prepare import Run
from remuda.runs.store import RunFolder
from tests.tiny import same
from tests.tiny_runs import killed_and_resumed, tiny, tree

pytestmark = pytest.mark.slow


def words(data: Path, run: Path, *more: str) -> list[str]:
    """GANs with batch norm that swap generators and do not take their moments along."""
    plain = [word for word in tiny(data, run) if not word.startswith(("method.", "network."))]
    return [
        *plain,
        "grid=1x2",
        "method=gap",
        "method.swap=generators",
        "network={family: dcgan, latent: 4, width: 2}",
        "training.average=5",
        "run.sheet_every=3",
        *more,
    ]


def last(run: Path) -> dict[int, Parcel]:
    folder = RunFolder(run)
    return folder.load_checkpoint(folder.checkpoints()[-1])


def part(parcel: Parcel, prefix: str) -> dict[str, Tensor]:
    return strip_prefix(prefix, parcel.tensors)


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("averaged") / "run"
    source, *overrides = words(data, run)
    training.train(load_config(source, overrides), engine=Engine("local"))
    return run


def test_two_processes_give_the_bits_of_one(data: Path, tmp_path: Path, undisturbed: Path) -> None:
    source, *overrides = words(data, tmp_path / "run")
    training.train(load_config(source, overrides), engine=Engine("process", 2))
    assert tree(tmp_path / "run") == tree(undisturbed)


def test_a_killed_and_resumed_run_ends_in_the_same_bits(
    data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    run = tmp_path / "run"
    killed_and_resumed(tmp_path, words(data, run), "after the manifest", "local")
    assert tree(run) == tree(undisturbed)


def test_the_ensemble_holds_the_average_and_says_so(undisturbed: Path) -> None:
    ensemble, parcels = load(undisturbed), last(undisturbed)
    assert ensemble.about["average"] == 5
    for member in ensemble.members:
        parcel = parcels[member.cell]
        assert same(member.state, part(parcel, AVERAGE))
        assert not same(member.state, part(parcel, GENERATOR))


def test_battles_are_fought_with_the_average(undisturbed: Path) -> None:
    found, parcels = load_population(undisturbed), last(undisturbed)
    for member in found.members:
        assert same(member.generator.state_dict(), part(parcels[member.cell], AVERAGE))
        assert not member.generator.training


# ---------------------------------------------------------------------------- other settings


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("average: 5.0", "average: 6.0"),
        ("average: 5.0", "average: null"),
        ("average_ramp: 0.05", "average_ramp: 0.2"),
    ],
)
def test_a_run_resumes_with_its_own_average_only(
    undisturbed: Path, tmp_path: Path, old: str, new: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    (run / "result.json").unlink()
    config, before = run / "config.yaml", tree(run)
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))
    with pytest.raises(StoreError, match=r"training\.average(_ramp)? was .* when the run started"):
        training.resume(run)
    config.write_text(text)
    assert tree(run) == before


def test_a_run_that_is_older_than_the_setting_cannot_switch_it_on(
    data: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    source, *overrides = words(data, run, "training.average=null", "rounds=1")
    training.train(load_config(source, overrides))
    (run / "result.json").unlink()
    env = json.loads((run / "env.json").read_text())
    for name in ("average", "average_ramp"):
        del env["config"]["training"][name]
    (run / "env.json").write_text(json.dumps(env))
    config = run / "config.yaml"
    text = config.read_text()
    config.write_text(re.sub(r"average: null", "average: 5", text))
    with pytest.raises(StoreError, match=r"training\.average was None when .* and is 5\.0 now"):
        training.resume(run)
    config.write_text(text)
    assert training.resume(run) is not None


# ---------------------------------------------------------------------------- init_from


def begun(data: Path, tmp_path: Path, source: Path, *more: str) -> Parcel:
    """What cell 0 of a new run starts from."""
    preset, *overrides = words(data, tmp_path / "new", f"init_from=[{source}]", *more)
    return initial_parcels(Run.prepare(load_config(preset, overrides)))["initial-0000.safetensors"]


def test_a_run_goes_on_with_the_average_it_starts_from(
    data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    found, start = begun(data, tmp_path, undisturbed), last(undisturbed)[0]
    for prefix in (AVERAGE, GENERATOR, f"generator.{STEPS}"):
        assert part(found, prefix)
        assert same(part(found, prefix), part(start, prefix))


def test_a_run_without_average_starts_from_the_raw_weights(
    data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    found = begun(data, tmp_path, undisturbed, "training.average=null")
    assert same(part(found, GENERATOR), part(last(undisturbed)[0], GENERATOR))
    assert not part(found, AVERAGE)


def test_an_average_begins_with_the_weights_where_there_was_none(
    data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    ensemble = undisturbed / "ensemble"
    cells = f"grid=1x{len(load(ensemble).members)}"
    found = begun(data, tmp_path, ensemble, cells)
    assert same(part(found, AVERAGE), dict(load(ensemble).members[0].state))
    assert same(part(found, AVERAGE), part(found, GENERATOR))
    assert torch.equal(found.tensors[f"generator.{STEPS}"], torch.tensor(0))


def test_a_broken_average_is_refused(data: Path, tmp_path: Path, undisturbed: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    folder, broken = RunFolder(run), last(undisturbed)
    name = next(name for name in part(broken[0], AVERAGE) if name.endswith("weight"))
    broken[0].tensors[AVERAGE + name].fill_(torch.nan)
    saved = [folder.save_cell(parcel) for parcel in broken.values()]
    folder.complete_checkpoint(broken[0].round, saved, None)
    with pytest.raises(ConfigError, match=r"init_from: .*:0 holds weights that are NaN"):
        begun(data, tmp_path, run)
