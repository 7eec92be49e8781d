"""A run's id: equal for equal networks, whatever the run is called and wherever it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from remuda.config import load_config
from remuda.config.base import Settings
from remuda.errors import DamagedError
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.runs.identity import EXTRACTOR, _chosen, is_id, run_id
from remuda.runs.loading import load
from remuda.runs.records import Environment
from remuda.runs.store import RunFolder
from tests.tiny_runs import tiny, tree, write_data

FIRST = {"initial-0000.safetensors": "aa", "initial-0001.safetensors": "bb"}


def id_of(*words: str, data: str = "digits", attached: dict[str, str] | None = None) -> str:
    env = {"data": {"fingerprint": data}, "attachments": attached or {}}
    return run_id(load_config("cellular-digits", list(words)), Environment.model_validate(env))


def test_an_id_is_sixteen_hexadecimal_digits() -> None:
    assert is_id(id_of())
    assert not any(is_id(one) for one in (None, 5, "run", id_of()[1:], id_of() + "0", "RUN" * 6))


@pytest.mark.parametrize(
    "words",
    [
        ("seed=1",),
        ("threads=2",),
        ("portable=true",),
        ("grid=3x3",),
        ("method=independent",),
        ("method=gap",),
        ("network.latent=7",),
        ("training.batch_size=7",),
        ("data.view=share", "data.share=0.25"),
        ("exchange.mode=async",),
    ],
)
def test_what_changes_weights_changes_the_id(words: tuple[str, ...]) -> None:
    assert id_of(*words) == id_of(*words)
    assert id_of(*words) != id_of()


def test_each_of_several_entries_counts() -> None:
    entries = ("", "{prior: uniform}", "{prior: uniform}, {}", "{}, {prior: uniform}")
    assert len({id_of("method=gap", f"members=[{one}]") for one in entries}) == 4


@pytest.mark.parametrize(
    "words",
    [
        ("name=other",),
        ("rounds=99",),
        ("exact=require",),
        ("run.dir=elsewhere", "run.keep_last=7", "run.checkpoint_every=3"),
        ("devices.generator=cuda",),
        ("data.dir=elsewhere",),
        ("data.reference=test",),
        ("init_from=[elsewhere]",),
        ("score.final_samples=77",),
        ("score.every=7", "score.samples=77"),
    ],
)
def test_what_does_not_change_weights_does_not_change_the_id(words: tuple[str, ...]) -> None:
    assert id_of(*words) == id_of()


def test_a_classifier_that_decides_counts_by_its_content_wherever_it_lies() -> None:
    def scored_by(path: str, sum: str) -> str:
        words = ("method.exchange=score", f"score.extractor={path}")
        return id_of(*words, attached={EXTRACTOR: sum})

    assert scored_by("/a/net.safetensors", "1") == scored_by("/b/net.safetensors", "1")
    assert scored_by("/a/net.safetensors", "1") != scored_by("/a/net.safetensors", "2")
    named = ("method.exchange=score", "score.extractor=random")
    assert id_of(*named) != id_of("method.exchange=score")


def test_the_content_of_the_data_counts_and_not_how_they_were_asked_for() -> None:
    assert id_of(data="other") != id_of()
    assert id_of("data.limit=100", data="part") == id_of("data=part.npz", data="part")


def test_scores_count_where_they_decide_who_stays() -> None:
    by_score = ("method.exchange=score",)
    assert id_of(*by_score, "score.samples=77") != id_of(*by_score)
    assert id_of(*by_score, "score.final_samples=77") == id_of(*by_score)


def test_the_first_gans_count_and_other_attachments_do_not() -> None:
    assert id_of(attached=FIRST) != id_of()
    swapped = dict(zip(FIRST, reversed(FIRST.values()), strict=True))
    assert len({id_of(attached=one) for one in (FIRST, swapped)}) == 2
    assert id_of(attached={**FIRST, "data.npz": "cc"}) == id_of(attached=FIRST)


class Before(Settings):
    size: int = 1


class After(Before):
    later: int = 3


def test_a_setting_that_is_added_later_leaves_ids_as_they_are() -> None:
    assert dict(_chosen(Before(size=2))) == dict(_chosen(After(size=2))) == {"size": 2}
    assert dict(_chosen(After(later=4))) == {"later": 4}


# ---------------------------------------------------------------------------- in run folders


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "data.npz")


def trained(data: Path, run: Path, *more: str, engine: str = "local") -> RunFolder:
    source, *words = tiny(data, run, "rounds=1", *more)
    training.train(load_config(source, words), engine=Engine(engine))
    return RunFolder(run)


def without_id(run: RunFolder) -> RunFolder:
    path = run.path / "env.json"
    content = json.loads(path.read_text())
    del content["id"]
    path.write_text(json.dumps(content))
    return run


@pytest.mark.slow
def test_a_run_has_one_id_on_all_engines_and_its_ensemble_says_it(
    data: Path, tmp_path: Path
) -> None:
    first = trained(data, tmp_path / "first")
    copied = shutil.copytree(first.path, tmp_path / "copied")
    one = trained(data, tmp_path / "one", f"init_from=[{first.path}]")
    other = trained(
        data, tmp_path / "a" / "other", f"init_from=[{copied}]", "name=b", engine="process"
    )
    assert one.env().id == one.id() == other.id() != first.id()
    assert load(one.path).about["id"] == one.id()
    assert f'- id: "{one.id()}"' in (one.path / "ensemble" / "README.md").read_text()
    parcels = [
        {name: content for name, content in tree(run.path).items() if "/cell-" in name}
        for run in (one, other)
    ]
    assert parcels[0]
    assert parcels[0] == parcels[1]  # lineages are in there


@pytest.mark.slow
def test_other_data_and_other_first_gans_make_another_run(data: Path, tmp_path: Path) -> None:
    runs = [
        trained(data, tmp_path / "one"),
        trained(write_data(tmp_path / "data.npz", seed=1), tmp_path / "two"),
        trained(data, tmp_path / "from-one", f"init_from=[{tmp_path / 'one'}]"),
        trained(data, tmp_path / "from-two", f"init_from=[{tmp_path / 'two'}]"),
    ]
    assert len({run.id() for run in runs}) == 4


@pytest.mark.slow
@pytest.mark.parametrize("old", [False, True], ids=["new", "of an earlier version"])
def test_a_run_keeps_its_id_when_it_goes_on_for_more_rounds(
    old: bool, data: Path, tmp_path: Path
) -> None:
    run = trained(data, tmp_path / "run")
    before = run.id()
    if old:
        assert without_id(run).id() == before
    (run.path / "result.json").unlink()
    config = run.path / "config.yaml"
    config.write_text(config.read_text().replace("rounds: 1 ", "rounds: 2 "))
    assert run.config().rounds == 2
    assert training.resume(run.path, engine=Engine("local")) is not None
    assert run.id() == before
    assert load(run.path).about["id"] == before


@pytest.mark.slow
def test_an_id_that_is_none_is_told(data: Path, tmp_path: Path) -> None:
    run = trained(data, tmp_path / "run")
    path = run.path / "env.json"
    path.write_text(path.read_text().replace(run.id(), "a/0"))
    with pytest.raises(DamagedError, match=r"env\.json: not a description .*: id='a/0'"):
        run.id()
