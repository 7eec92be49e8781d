"""Configurations from presets, files and overrides; and what a mistake in one is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from remuda.config import (
    CellularSettings,
    Config,
    IndependentSettings,
    MlpSettings,
    load_config,
    preset_expectation,
    preset_names,
    preset_summary,
    render,
    suggest,
    validate,
)
from remuda.errors import ConfigError


def refusal(*overrides: str, source: str = "cellular-digits") -> str:
    """What a bad configuration is told: always exactly one line."""
    with pytest.raises(ConfigError) as caught:
        load_config(source, overrides)
    said = str(caught.value)
    assert len(said.splitlines()) == 1, said
    return said


def written(folder: Path, text: str | bytes) -> str:
    path = folder / "my.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


# ---------------------------------------------------------------------------------- presets


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_and_says_in_one_line_what_it_is_for(name: str) -> None:
    assert load_config(name).name == name
    assert 20 < len(preset_summary(name)) < 100
    assert not preset_summary(name).startswith("#")
    assert len(preset_expectation(name)) < 100


def test_both_presets_of_the_foundation_are_there() -> None:
    assert {"quickstart", "cellular-mnist"} <= set(preset_names())


def test_without_a_source_the_quickstart_is_loaded() -> None:
    assert load_config() == load_config("quickstart")
    assert load_config().data.source == "digits"
    assert load_config().grid.shape == (1, 2)


def test_cellular_mnist_paper_is_table_1_of_the_article() -> None:
    """Parameter by parameter, as literals: the preset must not drift with the defaults."""
    config = load_config("cellular-mnist-paper").model_dump()
    assert config["rounds"] == 200  # iterations
    assert config["data"]["source"] == "mnist"
    assert config["network"] == {
        "family": "mlp",
        "latent": 64,  # input neurons
        "hidden": (256, 256),  # two hidden layers
        "activation": "tanh",
        "prior": "gaussian",
        "batch_norm": False,
        "discriminator_batch_norm": True,
        "output": "tanh",
        "spectral_norm": False,
        "minibatch_stddev": 0,
        "layer_norm": "none",
        "condition": "none",
        "classes": None,
    }
    assert config["grid"]["shape"] == (2, 2)
    assert config["grid"]["neighbourhood"] == "von_neumann"
    assert config["grid"]["schedule"] == ()
    method = config["method"]
    assert method["name"] == "cellular"
    assert method["tournament_size"] == 2
    assert method["mixture_scale"] == 0.01
    assert method["mutation_rate"] == 0.0001
    assert method["mutation_probability"] == 0.5
    assert method["losses"] == ("minimax", "heuristic", "least_squares")  # Mustangs
    assert method["communication"]
    assert method["selection"]
    assert method["mutation"]
    training = config["training"]
    assert training["learning_rate"] == 0.0002  # Adam
    assert training["batch_size"] == 100
    assert training["skip_n_disc_steps"] == 1
    assert training["batches_per_round"] is None  # an epoch


# ---------------------------------------------------------------------------------- overrides


def test_shorthands_read_as_people_say_them() -> None:
    config = load_config(
        "cellular-digits", ["grid=3x4", "data=mnist", "method=independent", "network=dcgan"]
    )
    assert config.grid.shape == (3, 4)
    assert config.data.source == "mnist"
    assert config.method == IndependentSettings()
    assert config.network.family == "dcgan"


def test_overrides_reach_every_level_and_the_last_of_a_key_wins() -> None:
    config = load_config(
        "cellular-digits",
        [
            "rounds=20",
            "rounds=30",
            "seed=7",
            "training.betas=[0.1, 0.9]",
            "network.hidden=[8]",
            "method.losses=[minimax, heuristic]",
            "training.learning_rate=1e-3",
            "data.limit=null",
            "grid.schedule=[{round: 3, neighbourhood: moore}]",
        ],
    )
    assert (config.rounds, config.seed) == (30, 7)
    assert config.training.betas == (0.1, 0.9)
    assert config.network == MlpSettings(hidden=(8,), activation="leaky_relu")
    assert config.training.learning_rate == 0.001
    assert config.data.limit is None
    assert config.grid.schedule[0].neighbourhood == "moore"


@pytest.mark.parametrize("turned", [False, True])
def test_choosing_a_method_drops_the_presets_section_but_no_override(turned: bool) -> None:
    overrides = ["method=independent", "method.ensemble=uniform"]
    config = load_config("cellular-mnist-paper", overrides[::-1] if turned else overrides)
    assert config.method == IndependentSettings(ensemble="uniform")


def test_naming_the_method_it_already_has_keeps_the_section() -> None:
    preset = load_config("cellular-mnist-paper")
    assert load_config("cellular-mnist-paper", ["method=cellular"]) == preset
    changed = load_config("cellular-mnist-paper", ["grid.neighbourhood=moore"])
    assert changed.grid.shape == preset.grid.shape


def test_words_that_look_like_dates_or_hex_are_text() -> None:
    assert load_config("quickstart", ["name=2026-13-45"]).name == "2026-13-45"
    assert load_config("quickstart", ["data.source=0x10"]).data.source == "0x10"


# ---------------------------------------------------------------------------------- files


def test_a_yaml_file_alone_starts_from_the_defaults(tmp_path: Path) -> None:
    source = written(tmp_path, "name: mine\nrounds: 4\ngrid: 1x3\ntraining:\n  batch_size: 10\n")
    config = load_config(source, ["rounds=5"])
    assert (config.name, config.rounds, config.grid.shape) == ("mine", 5, (1, 3))
    assert config.training.batch_size == 10
    assert config.training.learning_rate == Config().training.learning_rate


def test_a_yaml_file_can_build_on_a_preset(tmp_path: Path) -> None:
    source = written(tmp_path, "preset: cellular-mnist-paper\nmethod:\n  tournament_size: 3\n")
    config = load_config(source)
    values = load_config("cellular-mnist-paper").model_dump()
    values["method"]["tournament_size"] = 3
    assert config == Config.model_validate(values)


def test_a_section_that_leaves_out_its_kind_is_of_the_default_kind(tmp_path: Path) -> None:
    source = written(tmp_path, "network:\n  hidden: [8]\nmethod:\n  tournament_size: 1\n")
    config = load_config(source)
    assert config.network == MlpSettings(hidden=(8,))
    assert config.method == CellularSettings(tournament_size=1)
    assert load_config(source, ["network=dcgan"]).network.family == "dcgan"


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, "# nothing yet\n")) == Config()


# ---------------------------------------------------------------------------------- printing


def test_every_setting_is_printed_with_its_description(tmp_path: Path) -> None:
    text = render(load_config("cellular-mnist-paper"))
    for line in text.splitlines():
        assert "#" in line or line.endswith(":"), line
        assert len(line) <= 110
    assert load_config(written(tmp_path, text)) == load_config("cellular-mnist-paper")


@pytest.fixture(scope="module")
def module_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("render")


NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,9}\Z")
ODD_TEXT = st.sampled_from(
    ["1e5", "0x3", "yes", "null", "~", "", "a: b #c", "'", '"', "é…", "[/b]"]
)


@settings(max_examples=40, deadline=None)
@example(name="1e5", source="1.5e3", rate=1e-5, seed=0, shape=(1, 1), hidden=[1], label="no")
@example(name="2020-01-01", source="...", rate=0.1, seed=2**62, shape=(3, 1), hidden=[1], label=3)
@given(
    name=NAMES,
    source=ODD_TEXT | st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=12),
    rate=st.floats(1e-300, 1.0, exclude_min=True),
    seed=st.integers(0, 2**63 - 1),
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    hidden=st.lists(st.integers(1, 1000), min_size=1, max_size=3),
    label=st.integers(0, 9) | ODD_TEXT,
)
def test_what_is_printed_loads_back_equal(
    module_path: Path,
    name: str,
    source: str,
    rate: float,
    seed: int,
    shape: tuple[int, int],
    hidden: list[int],
    label: int | str,
) -> None:
    config = validate(
        {
            "name": name,
            "seed": seed,
            "data": {"source": source, "view": "label", "label": label},
            "training": {"learning_rate": rate},
            "network": {"family": "mlp", "hidden": hidden},
            "method": "independent",
            "grid": {"shape": shape, "schedule": [{"round": 2, "neighbourhood": "moore"}]},
            "run": {"dir": source or None},
        }
    )
    assert load_config(written(module_path, render(config))) == config


# ---------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("ronds=5", "rounds"),
        ("data.sorce=x", "data.source"),
        ("network.hiden=[3]", "network.hidden"),
        ("training.batchsize=5", "training.batch_size"),
        ("grid.shap=3x3", "grid.shape"),
        ("grid.schedule=[{round: 2, shap: 1x4}]", "grid.schedule[0].shape"),
        ("method.tournament=5", "method.tournament_size"),
        ("score.metrics=fid", "score.metric"),
        ("run.keep_lst=1", "run.keep_last"),
        ("tournament_size=2", "method.tournament_size"),  # right name, wrong level
    ],
)
def test_an_unknown_key_is_told_the_nearest_and_the_allowed(override: str, nearest: str) -> None:
    said = refusal(override)
    assert "unknown key" in said
    assert f"did you mean {nearest}?" in said
    assert "allowed" in said
    key = override.partition("=")[0]
    assert said.startswith(key)


@pytest.mark.parametrize(
    ("override", "allowed"),
    [
        ("rounds=many", "a whole number at least 1"),
        ("rounds=1.5", "a whole number at least 1"),
        ("rounds=", "a whole number at least 1"),
        ("rounds=null", "a whole number at least 1"),
        ("rounds=0", "a whole number at least 1"),
        ("rounds.x=1", "a whole number at least 1"),
        ("seed=-1", "a whole number at least 0"),
        ("threads=0", "a whole number at least 1"),
        ("name=a/b", "text like"),
        ("training=5", "a section with batch_size"),
        ("training.learning_rate=2", "a number above 0 at most 1"),
        ("training.learning_rate=.nan", "a number above 0 at most 1"),
        ("training.betas=[0.5, 2]", "a number at least 0 below 1"),
        ("training.batch_size=1", "a whole number at least 2"),
        ("network.hidden=[]", "a list of a whole number at least 1"),
        ("network.hidden=[0]", "a list of a whole number at least 1"),
        ("network.hidden=8", "a list of a whole number at least 1"),
        ("data.size=2", "a whole number at least 4 at most 1024, or null"),
        ("data.colour=maybe", "true or false, or null"),
        ("method.communication=5", "true or false"),
        ("method.mutation_probability=1.01", "a number at least 0 at most 1"),
        ("run.keep_last=0", "a whole number at least 1"),
        ("grid.schedule=5", "a list of a section with round"),
        ("score.final_samples=3", "a whole number at least 20"),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_what_is_allowed(override: str, allowed: str) -> None:
    said = refusal(override)
    key, _, value = override.partition("=")
    assert said.startswith(key.removesuffix(".x"))
    assert f"allowed: {allowed}" in said or ("allowed: a list of 2: " + allowed) in said
    if value and "[" not in value and not key.endswith(".x"):
        assert f"={value.removeprefix('.')}:" in said


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("score.metric=ffid", "fid"),
        ("score.metric=FID", "fid"),
        ("network.activation=leaky", "leaky_relu"),
        ("grid.neighbourhood=more", "moore"),
        ("training.objective=wassertein", "wasserstein"),
        ("method.losses=[minmax]", "minimax"),
        ("method=celular", "cellular"),
        ("network=mpl", "mlp"),
    ],
)
def test_a_bad_word_is_told_the_nearest_and_all_allowed(override: str, nearest: str) -> None:
    said = refusal(override)
    assert f"did you mean {nearest}? allowed: " in said
    assert override.partition("=")[2].strip("[]") in said


@pytest.mark.parametrize("shape", ["0x3", "3x0", "-1x2", "3", "3x", "axb", "2x2x2", "[2]"])
def test_an_impossible_grid_is_told_how_grids_are_written(shape: str) -> None:
    said = refusal(f"grid={shape}")
    assert said.startswith("grid.shape=")
    assert "allowed: ROWSxCOLUMNS, both at least 1" in said


@pytest.mark.parametrize(
    ("overrides", "smallest"), [((), 3), (("grid=1x1",), 1), (("grid=3x3",), 5)]
)
def test_a_tournament_larger_than_the_neighbourhood_is_refused(
    overrides: tuple[str, ...], smallest: int
) -> None:
    size = smallest + 1
    said = refusal(*overrides, f"method.tournament_size={size}")
    assert said.startswith(f"method.tournament_size={size}")
    assert f"neighbourhood of {smallest}" in said
    assert f"allowed: 1 to {smallest}" in said


def test_a_tournament_that_stops_fitting_during_the_run_is_refused() -> None:
    said = refusal(
        "grid=3x3",
        "method.tournament_size=5",
        "grid.schedule=[{round: 9, neighbourhood: ring}]",
    )
    assert "neighbourhood of 3 on a 3x3 ring grid" in said


@pytest.mark.parametrize(
    "overrides",
    [
        ("data.view=label",),
        ("data.label=3",),
        ("data.view=share", "data.overlap=false", "data.share=0.5"),
        ("training.n_critic=2", "training.skip_n_disc_steps=1"),
        ("training.objective=wasserstein", "method.losses=[minimax]"),
        ("network=dcgan", "training.objective=relativistic"),
        ("grid.neighbourhood=table",),
        ("grid.schedule=[{round: 2, shape: 3x3}]",),
    ],
)
def test_an_impossible_combination_names_its_keys(overrides: tuple[str, ...]) -> None:
    said = refusal(*overrides)
    named = {override.partition("=")[0].partition(".")[0] for override in overrides}
    assert any(name in said for name in named)


@pytest.mark.parametrize("override", ["rounds", "=5", "a..b=3", ".=1"])
def test_what_is_no_setting_is_shown_how_one_looks(override: str) -> None:
    assert "expected key=value, for example rounds=20" in refusal(override)


@pytest.mark.parametrize(
    "override", ["rounds=[1", "rounds={a: ", "name=!!python/object:os.system x", "name=\0"]
)
def test_a_value_that_is_no_yaml_is_refused(override: str) -> None:
    assert "not valid YAML" in refusal(override)


@pytest.mark.parametrize("source", ["cellular-minst", "quikstart", "Quickstart"])
def test_an_unknown_preset_is_told_the_nearest(source: str) -> None:
    said = refusal(source=source)
    assert said.startswith(f"{source}: neither a preset nor a file; did you mean ")
    assert f"presets: {', '.join(preset_names())}" in said


@pytest.mark.parametrize("source", ["x" * 5000, "no\0such", "/", "no/such.yaml"])
def test_a_source_that_can_be_no_file_is_refused(source: str) -> None:
    assert "neither a preset nor a file" in refusal(source=source)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rounds: [1\n", "line 2: not valid YAML"),
        ("a: b: c\n", "line 1: not valid YAML"),
        ("x: \x07\n", "not valid YAML"),
        ("name: !!python/object/apply:os.getpid []\n", "line 1: not valid YAML"),
        ("[" * 5000, "not valid YAML"),
        (b"name: \xff\xfe\n", "cannot be read as text"),
        ("- rounds\n- 5\n", "expected 'key: value' lines, found list"),
        ("just words\n", "expected 'key: value' lines, found str"),
        ("1: 2\n", "expected 'key: value' lines"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(
    tmp_path: Path, text: str | bytes, says: str
) -> None:
    source = written(tmp_path, text)
    said = refusal(source=source)
    assert said.startswith(source)
    assert says in said


def test_a_mistake_in_a_file_is_explained_like_one_in_an_override(tmp_path: Path) -> None:
    said = refusal(source=written(tmp_path, "training:\n  batchsize: 5\n"))
    assert said.startswith("training.batchsize=5: unknown key; did you mean training.batch_size?")
    said = refusal(source=written(tmp_path, "preset: quickstrt\n"))
    assert "preset=quickstrt: unknown" in said
    assert f"did you mean quickstart? allowed: {', '.join(preset_names())}" in said


def test_several_mistakes_get_a_line_each() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("quickstart", ["rounds=0", "seeed=1"])
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("rounds=0")
    assert lines[1].startswith("seeed=1")


def test_suggestions_come_only_when_close() -> None:
    assert suggest("fid", ["fid", "tvd"]) == "; did you mean fid?"
    assert suggest("zebra", ["fid", "tvd"]) == ""


def test_configurations_load_without_torch() -> None:
    code = "import sys, remuda.config as c; c.load_config(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_settings_inside_a_section_of_a_section_keep_the_others(tmp_path: Path) -> None:
    text = "method: {name: cellular, genes: {r1: [0.1, 1], step: 0.5}}\ntraining: {r1: 0.1}\n"
    method = load_config(written(tmp_path, text), ["method.genes.step=0.8"]).method
    assert isinstance(method, CellularSettings)
    assert (method.genes.r1, method.genes.step) == ((0.1, 1), 0.8)


def test_another_kind_of_a_section_inside_a_section_begins_anew(tmp_path: Path) -> None:
    within = "{name: cellular, margin: 2}"
    text = f"method: {{name: class_parallel, replicas: 2, within: {within}}}\n"
    config = load_config(written(tmp_path, text), ["method.within={name: gap}"])
    found = config.model_dump()["method"]["within"]
    assert found["name"] == "gap"
    assert "margin" not in found
