"""Fine-tuning: runs whose cells start from GANs of earlier runs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from remuda.config import load_config
from remuda.errors import ConfigError, DamagedError
from remuda.gan.parcels import Parcel, role_tensors
from remuda.methods import ancestor, lineage, lineages_met
from remuda.parallel import training
from remuda.runs import initial
from remuda.runs.store import RunFolder
from tests.tiny_runs import tiny, write_data

pytestmark = pytest.mark.slow  # whole runs

GAP = ("method=gap", "network.activation=tanh", "run.checkpoint_every=2", "run.keep_last=9")


def words(folder: Path, name: str, *more: str) -> list[str]:
    data = folder / "data.npz"
    if not data.exists():
        write_data(data)
    plain = [word for word in tiny(data, folder / name) if not word.startswith("method.")]
    return [*plain, *GAP, "grid=1x2", *more]


def train(folder: Path, name: str, *more: str) -> RunFolder:
    source, *overrides = words(folder, name, *more)
    training.train(load_config(source, overrides))
    return RunFolder(folder / name)


def last(run: RunFolder) -> dict[int, Parcel]:
    return run.load_checkpoint(run.checkpoints()[-1])


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: `one` of a single GAN, `two` of a pair that swapped."""
    folder = tmp_path_factory.mktemp("earlier")
    train(folder, "one", "grid=1x1", "seed=5")
    train(folder, "two", "seed=6", "rounds=2")
    return folder


def network(parcel: Parcel, role: str) -> dict[str, torch.Tensor]:
    found = role_tensors(parcel, role)
    return {name: value for name, value in found.items() if name.startswith("network.")}


def same_network(left: Parcel, right: Parcel, role: str) -> bool:
    mine, theirs = network(left, role), network(right, role)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[k], theirs[k]) for k in mine)


def test_cells_start_from_the_gans_of_the_runs_in_order(earlier: Path, tmp_path: Path) -> None:
    sources = f"init_from=[{earlier / 'one'}, '{earlier / 'two'}:1']"
    run = train(tmp_path, "fine", sources, "rounds=1")
    expected = [last(RunFolder(earlier / "one"))[0], last(RunFolder(earlier / "two"))[1]]
    for cell, start in enumerate(expected):
        begun = run.load_initial(cell)
        assert (begun.cell, begun.round) == (cell, 0)
        for role in ("generator", "discriminator"):
            assert same_network(begun, start, role)
            assert not any(name.startswith("adam.") for name in role_tensors(begun, role))
            assert not same_network(last(run)[cell], start, role)  # and train on
    one, two = (RunFolder(earlier / name).id() for name in ("one", "two"))
    assert lineage(run.load_initial(0)) == f"{one}/0"
    assert lineages_met(run.load_initial(0)) == {f"{one}/0"}
    assert lineage(run.load_initial(1)) == f"{two}/0"  # the pair had swapped
    assert lineages_met(run.load_initial(1)) == {f"{two}/0", f"{two}/1"}
    assert lineages_met(last(run)[1]) == {f"{two}/0", f"{two}/1"}


def test_a_whole_run_gives_all_its_cells(earlier: Path, tmp_path: Path) -> None:
    run = train(tmp_path, "fine", f"init_from=[{earlier / 'two'}]", "rounds=1")
    for cell, start in last(RunFolder(earlier / "two")).items():
        assert same_network(run.load_initial(cell), start, "generator")


def test_an_ensemble_gives_generators_and_discriminators_are_new(
    earlier: Path, tmp_path: Path
) -> None:
    source = earlier / "one" / "ensemble"
    run = train(tmp_path, "fine", f"init_from=[{source}]", "grid=1x1", "rounds=1")
    begun, start = run.load_initial(0), last(RunFolder(earlier / "one"))[0]
    assert same_network(begun, start, "generator")
    assert not same_network(begun, start, "discriminator")
    assert lineage(begun) == "0"
    assert lineages_met(begun) == {f"{RunFolder(earlier / 'one').id()}/0"}


def test_an_ensemble_tells_whom_its_generators_met(earlier: Path, tmp_path: Path) -> None:
    source = shutil.copytree(earlier / "two" / "ensemble", tmp_path / "elsewhere")
    run = train(tmp_path, "fine", f"init_from=[{source}]", "grid=1x1", "rounds=1")
    two = RunFolder(earlier / "two").id()
    assert lineages_met(run.load_initial(0)) == {f"{two}/0", f"{two}/1"}
    assert ancestor(run.load_initial(0)).startswith(f"{two}/")


def without_ids(run: Path) -> Path:
    """The run as an earlier version wrote it."""
    for path, part in ((run / "env.json", None), (run / "ensemble" / "config.json", "about")):
        content = json.loads(path.read_text())
        del (content[part] if part else content)["id"]
        path.write_text(json.dumps(content))
    return run


def test_an_ensemble_of_an_earlier_version_is_known_by_its_run_or_by_its_folder(
    earlier: Path, tmp_path: Path
) -> None:
    old = without_ids(shutil.copytree(earlier / "two", tmp_path / "old"))
    run = train(tmp_path, "near", f"init_from=[{old / 'ensemble'}]", "grid=1x1", "rounds=1")
    two = RunFolder(earlier / "two").id()
    assert lineages_met(run.load_initial(0)) == {f"{two}/0", f"{two}/1"}
    origins = []
    for place in ("a", "b"):
        away = shutil.copytree(old / "ensemble", tmp_path / place / "old" / "best")
        run = train(tmp_path, f"far-{place}", f"init_from=[{away}]", "grid=1x1", "rounds=1")
        assert lineages_met(run.load_initial(0)) == {"old/0", "old/1"}
        origins.append(ancestor(run.load_initial(0)))
    assert origins[0] == origins[1]  # equal weights, wherever they are
    other = without_ids(shutil.copytree(earlier / "one", tmp_path / "other"))
    away = shutil.copytree(other / "ensemble", tmp_path / "c" / "old" / "best")
    run = train(tmp_path, "far-c", f"init_from=[{away}]", "grid=1x1", "rounds=1")
    assert ancestor(run.load_initial(0)) not in origins


def test_after_a_cellular_run_all_connected_cells_have_met(earlier: Path, tmp_path: Path) -> None:
    del earlier
    train(tmp_path, "cells", "method=cellular", "method.tournament_size=1", "rounds=1")
    run = train(tmp_path, "fine", f"init_from=[{tmp_path / 'cells'}]", "rounds=1")
    cells = RunFolder(tmp_path / "cells").id()
    assert lineages_met(run.load_initial(0)) == {f"{cells}/0", f"{cells}/1"}


def test_a_resumed_run_needs_the_earlier_ones_no_more(earlier: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(earlier / "two", copied)
    whole = train(tmp_path, "whole", f"init_from=[{copied}]", "rounds=3")
    cut = tmp_path / "cut"
    shutil.copytree(tmp_path / "whole", cut)
    shutil.rmtree(copied)
    # As after a kill before the first checkpoint: the very beginning must be the same.
    for part in ("checkpoints", "ensemble", "samples"):
        shutil.rmtree(cut / part)
    for part in ("result.json", "events.jsonl"):
        (cut / part).unlink()
    assert training.resume(cut) is not None
    for cell, parcel in last(whole).items():
        other = last(RunFolder(cut))[cell]
        for role in ("generator", "discriminator"):
            assert same_network(parcel, other, role)
        assert parcel.meta["memory"] == other.meta["memory"]


def test_a_damaged_beginning_is_found(earlier: Path, tmp_path: Path) -> None:
    run = train(tmp_path, "fine", f"init_from=[{earlier / 'two'}]", "rounds=1")
    path = tmp_path / "fine" / "initial-0001.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=r"initial-0001\.safetensors: damaged"):
        run.load_initial(1)


@pytest.mark.parametrize(
    ("sources", "more", "says"),
    [
        ("[EARLIER/none]", (), r"init_from=.*none: no such folder; allowed: a run folder"),
        ("['EARLIER/none:1']", (), r"init_from=.*none:1: no such folder"),
        ("[EARLIER]", (), r"init_from=.*: not a run folder: it has no config\.yaml"),
        ("[EARLIER/one]", (), r"1 GANs \(.*one:0\) for 2 cells; allowed: as many as cells, .*1x1"),
        ("['EARLIER/two:7', EARLIER/one]", (), r"two has no cell 7; allowed: 0, 1"),
        (
            "[EARLIER/two]",
            ("network.hidden=[9]",),
            r"two:0 has other networks than cell 0; allowed: .*network: hidden=\(8,\)",
        ),
    ],
)
def test_what_cannot_be_started_from_is_named_before_anything_is_written(
    earlier: Path, tmp_path: Path, sources: str, more: tuple[str, ...], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        train(tmp_path, "fine", f"init_from={sources.replace('EARLIER', str(earlier))}", *more)
    assert not (tmp_path / "fine").exists()


def test_networks_for_other_data_are_refused(earlier: Path, tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("\n".join(f"{n},{n * n}" for n in range(60)))
    more = (f"data={tmp_path / 'points.csv'}", "score.extractor=none")
    with pytest.raises(ConfigError, match=r"two:0 does not fit the data: size mismatch"):
        train(tmp_path, "fine", f"init_from=[{earlier / 'two'}]", *more)


def test_a_run_whose_checkpoints_are_gone_gives_its_ensemble(earlier: Path, tmp_path: Path) -> None:
    shutil.copytree(earlier / "one", tmp_path / "one")
    shutil.rmtree(tmp_path / "one" / "checkpoints")
    more = (f"init_from=[{tmp_path / 'one'}]", "grid=1x1", "rounds=1")
    run = train(tmp_path, "fine", *more)
    assert same_network(run.load_initial(0), last(RunFolder(earlier / "one"))[0], "generator")
    shutil.rmtree(tmp_path / "one" / "ensemble")
    with pytest.raises(ConfigError, match="neither a readable checkpoint nor an ensemble"):
        train(tmp_path, "again", *more)


def test_the_run_folder_says_what_it_holds(earlier: Path, tmp_path: Path) -> None:
    train(tmp_path, "fine", f"init_from=[{earlier / 'two'}]", "rounds=1")
    env = json.loads((tmp_path / "fine" / "env.json").read_text())
    assert set(env["attachments"]) == {"initial-0000.safetensors", "initial-0001.safetensors"}
    assert load_config(str(tmp_path / "fine" / "config.yaml")).init_from == (str(earlier / "two"),)


def test_runs_of_the_same_name_in_other_folders_are_strangers_and_copies_relatives(
    earlier: Path, tmp_path: Path
) -> None:
    origins = {}
    for place, name in (("a", "one"), ("b", "two"), ("c", "two")):
        source = shutil.copytree(earlier / name, tmp_path / place / "run")
        more = (f"init_from=['{source}:0']", "grid=1x1", "rounds=1")
        begun = train(tmp_path, f"from-{place}", *more).load_initial(0)
        origins[place] = (lineage(begun), ancestor(begun))
    assert not set(origins["a"]) & set(origins["b"])
    assert origins["b"] == origins["c"]


def test_a_chain_of_runs_keeps_the_names_of_the_first(earlier: Path, tmp_path: Path) -> None:
    train(tmp_path, "second", f"init_from=[{earlier / 'one'}]", "grid=1x1", "rounds=1")
    moved = (tmp_path / "second").rename(tmp_path / "moved")
    third = train(tmp_path, "third", f"init_from=[{moved}]", "grid=1x1", "rounds=1")
    one = RunFolder(earlier / "one").id()
    assert lineage(last(third)[0]) == f"{one}/0"
    assert ancestor(last(third)[0]) == f"{one}/0"
    ensemble = shutil.copytree(moved / "ensemble", tmp_path / "generators")
    fourth = train(tmp_path, "fourth", f"init_from=[{ensemble}]", "grid=1x1", "rounds=1")
    # The generator is one's; the ensemble says whom it met, not who began it.
    assert lineages_met(last(fourth)[0]) == {f"{one}/0", "0"}


def test_a_prior_that_nobody_knows_is_told_in_one_line(
    earlier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def newest(_: RunFolder) -> dict[int, Parcel]:
        parcels = last(RunFolder(earlier / "one"))
        return {
            cell: replace(one, meta={**one.meta, "prior": "x"}) for cell, one in parcels.items()
        }

    monkeypatch.setattr(initial, "_newest", newest)
    with pytest.raises(ConfigError, match=r"cell 0 of its checkpoint has a prior of 'x'; allowed:"):
        train(tmp_path, "fine", f"init_from=[{earlier / 'one'}]", "grid=1x1", "rounds=1")


def test_a_generator_brings_its_prior_where_generators_are_swapped_and_nowhere_else(
    tmp_path: Path,
) -> None:
    kinds = "members=[{prior: uniform}, {prior: gaussian}]"
    earlier = train(tmp_path, "two", "rounds=2", "method.swap=generators", kinds)
    assert [last(earlier)[cell].meta["prior"] for cell in (0, 1)] == ["gaussian", "uniform"]
    start = f"init_from=[{earlier.path}]"
    fine = train(tmp_path, "fine", start, "rounds=1", "method.swap=generators", kinds)
    for begun in (fine.load_initial, last(fine).__getitem__):
        assert [begun(cell).meta["prior"] for cell in (0, 1)] == ["gaussian", "uniform"]
    turned = "members=[{prior: gaussian}, {prior: uniform}]"
    assert "prior" not in train(tmp_path, "alone", start, "rounds=1", turned).load_initial(0).meta
    with pytest.raises(ConfigError, match=r"two:0 has other networks.*prior=gaussian"):
        train(tmp_path, "refused", start, "rounds=1", kinds)
