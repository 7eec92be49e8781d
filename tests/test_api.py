"""remuda from Python, as design.md writes it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remuda
from remuda.errors import ConfigError, DataError, RemudaError, StoreError
from remuda.metrics import Scores
from remuda.parallel import training
from tests import tiny_runs

SMALL: dict[str, Any] = {
    "rounds": 2,
    "network__hidden": [8],
    "network__latent": 4,
    "training__batch_size": 10,
    "training__batches_per_round": 2,
    "score__samples": 20,
    "score__final_samples": 20,
}


def images(count: int = 40, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 28, 28), dtype=np.uint8)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> remuda.PopulationGAN:
    folder = tmp_path_factory.mktemp("fit") / "run"
    model = remuda.PopulationGAN(method="cellular", grid=(1, 2), run_dir=folder, **SMALL)
    return model.fit(images())


def test_import_remuda_does_not_import_torch() -> None:
    code = "import sys, remuda; remuda.__version__; print([m for m in ('torch', 'numpy', 'PIL') "
    code += "if m in sys.modules], 'PopulationGAN' in dir(remuda))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "[] True"


def test_what_remuda_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = remuda.trian


def test_three_lines_from_a_run_to_images(fitted: remuda.PopulationGAN) -> None:
    model = remuda.load(fitted.run_dir_)
    found = model.sample(64, seed=0)
    assert found.shape == (64, 1, 28, 28)
    assert found.dtype == np.float32
    assert found.min() >= 0
    assert found.max() <= 1
    assert np.array_equal(found, fitted.sample(64, seed=0))
    again = remuda.load(str(fitted.run_dir_ / "ensemble")).sample(64, seed=0)
    assert np.array_equal(found, again)


def test_images_that_may_not_be_digits_are_scored_as_digits_only_on_demand(
    fitted: remuda.PopulationGAN, tmp_path: Path
) -> None:
    assert fitted.scores_ is not None
    assert fitted.scores_.extractor.startswith("random ")
    scores = remuda.score(fitted.run_dir_, samples=20, real=30, extractor="digits")
    assert isinstance(scores, Scores)
    assert (scores.samples, scores.real_samples) == (20, 30)
    settings = {**SMALL, "rounds": 1, "score__extractor": "digits"}
    asked = remuda.PopulationGAN(grid=(1, 2), run_dir=tmp_path / "run", **settings).fit(images())
    assert asked.scores_ is not None
    assert asked.scores_.extractor == scores.extractor == "digits-cnn-1"
    assert asked.scores_.extractor_id == scores.extractor_id


def test_fit_leaves_a_run_folder(fitted: remuda.PopulationGAN) -> None:
    assert (fitted.run_dir_ / "ensemble" / "samples.png").is_file()
    assert remuda.resume(fitted.run_dir_) is None  # finished


def test_fit_gives_the_same_model_for_the_same_seed(
    fitted: remuda.PopulationGAN, tmp_path: Path
) -> None:
    twin = remuda.PopulationGAN(grid=(1, 2), run_dir=tmp_path / "twin", **SMALL).fit(images())
    assert np.array_equal(twin.sample(16), fitted.sample(16))
    other = remuda.PopulationGAN(grid=(1, 2), run_dir=tmp_path / "o", seed=1, **SMALL)
    assert not np.array_equal(other.fit(images()).sample(16), fitted.sample(16))


@pytest.mark.parametrize("layout", ["NHW", "NCHW", "NHWC", "floats"])
def test_images_are_taken_in_every_usual_layout(layout: str, tmp_path: Path) -> None:
    given: np.ndarray = {
        "NHW": images(),
        "NCHW": np.repeat(images()[:, None], 3, 1),
        "NHWC": np.repeat(images()[..., None], 3, 3),
        "floats": images() / 255,
    }[layout]
    settings = {**SMALL, "rounds": 1, "score__extractor": "none"}
    model = remuda.PopulationGAN("independent", (1, 1), run_dir=tmp_path / "run", **settings)
    channels = 3 if layout in ("NCHW", "NHWC") else 1
    assert model.fit(given).sample(5).shape == (5, channels, 28, 28)
    assert model.scores_ is None


def test_points_are_fitted_in_their_own_units(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    points = rng.uniform([-3, 1000], [5, 2000], (80, 2))
    model = remuda.PopulationGAN("independent", (1, 2), run_dir=tmp_path / "run", **SMALL)
    found = model.fit(points).sample(300)
    assert found.shape == (300, 2)
    assert (found >= points.min(0) - 1e-3).all()
    assert (found <= points.max(0) + 1e-3).all()
    assert (tmp_path / "run" / "ensemble" / "samples.png").is_file()


def test_an_interrupted_fit_can_be_resumed(fitted: remuda.PopulationGAN, tmp_path: Path) -> None:
    """Also after the array is gone: the data lie in the run folder."""

    class Enough(Exception):
        pass

    class Impatient(remuda.api.Observer):  # type: ignore[name-defined,misc]
        def completed(self, *_: object) -> None:
            raise Enough

    train = training.train

    def interrupted(config: Any, **more: Any) -> Any:
        return train(config, Impatient(), **more)

    model = remuda.PopulationGAN(grid=(1, 2), run_dir=tmp_path / "run", **SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train", interrupted)
        with pytest.raises(Enough):
            model.fit(images())
    with pytest.raises(StoreError, match="not finished; `remuda resume"):
        remuda.load(tmp_path / "run")
    code, _, errors = tiny_runs.remuda(tmp_path, "resume", str(tmp_path / "run"))
    assert code == 0, errors
    assert np.array_equal(remuda.load(tmp_path / "run").sample(9), fitted.sample(9))


def test_a_limited_fit_can_be_resumed_too(tmp_path: Path) -> None:
    model = remuda.PopulationGAN(grid=(1, 1), run_dir=tmp_path / "run", data__limit=20, **SMALL)
    model.set_params(method__tournament_size=1).fit(images())
    (tmp_path / "run" / "result.json").unlink()
    result = remuda.resume(tmp_path / "run")
    assert result is not None
    assert json.loads((tmp_path / "run" / "env.json").read_text())["data"]["items"] == 20


def test_settings_reach_the_configuration(tmp_path: Path) -> None:
    from remuda.runs.store import RunFolder

    settings = {**SMALL, "training": {"learning_rate": 0.01, "batch_size": 5}}
    model = remuda.PopulationGAN(
        grid=(1, 3), run_dir=tmp_path / "run", method__tournament_size=3, **settings
    )
    model.fit(images(), np.arange(40) % 4)
    config = RunFolder(model.run_dir_).config()
    assert config.grid.shape == (1, 3)
    assert config.training.learning_rate == 0.01
    assert config.method.model_dump()["tournament_size"] == 3


def test_parameters_can_be_read_set_and_cloned() -> None:
    model = remuda.PopulationGAN(rounds=3, training__batch_size=7)
    assert model.get_params() == {
        "method": "cellular",
        "grid": (2, 2),
        "rounds": 3,
        "seed": 0,
        "run_dir": None,
        "training__batch_size": 7,
    }
    assert model.set_params(seed=5, training__batch_size=9) is model
    assert (model.get_params()["seed"], model.get_params()["training__batch_size"]) == (5, 9)
    assert model.get_params()["rounds"] == 3
    clone = remuda.PopulationGAN(**model.get_params(deep=False))
    assert clone.get_params() == model.get_params()
    assert "training__batch_size=9" in repr(model)


def test_a_model_that_is_not_fitted_says_so() -> None:
    with pytest.raises(RemudaError, match=r"not fitted yet; call fit\(X\) first"):
        remuda.PopulationGAN().sample(3)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"method": "celular"}, "did you mean cellular"),
        ({"trainng__batch_size": 3}, "did you mean training"),
        ({"rounds": 0}, "rounds=0"),
        ({"grid": (0, 3)}, "ROWSxCOLUMNS"),
        ({"training__batch_size": 1000}, "larger than the 40 items"),
        ({"run__dir": "elsewhere"}, "follow from fit"),
        ({"data__source": "mnist"}, "follow from fit"),
    ],
)
def test_a_bad_setting_is_told_and_leaves_nothing(
    settings: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = remuda.PopulationGAN(**{**SMALL, **settings})
    with pytest.raises(ConfigError, match=says):
        model.fit(images())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "array", [np.zeros((0, 4)), np.array(["a"]), np.full((9, 2), np.nan), np.zeros((9, 4, 4, 7))]
)
def test_an_array_that_is_no_data_is_refused(array: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        remuda.PopulationGAN(run_dir=tmp_path / "run").fit(array)
    assert list(tmp_path.iterdir()) == []


def test_train_and_load_a_preset(tmp_path: Path) -> None:
    data = tiny_runs.write_data(tmp_path / "images.npz")
    result = remuda.train(*tiny_runs.tiny(data, tmp_path / "run"))
    assert result.path == tmp_path / "run"
    assert np.array_equal(remuda.load(result.path).sample(5), result.ensemble.sample(5))


@pytest.mark.parametrize("what", ["missing", "empty"])
def test_what_is_no_run_cannot_be_loaded(what: str, tmp_path: Path) -> None:
    path = tmp_path / what
    if what == "empty":
        path.mkdir()
    with pytest.raises(StoreError, match=f"^{path}: not a run folder"):
        remuda.load(path)


def test_one_gan_per_label_of_arrays(tmp_path: Path) -> None:
    labels = np.arange(len(images())) % 2 + 5
    model = remuda.PopulationGAN(method="class_parallel", run_dir=tmp_path / "run", **SMALL)
    model.fit(images(), labels)
    assert model.ensemble_.labels is not None
    assert model.ensemble_.labels.names == ("5", "6")
    five, six = (model.sample(4, seed=1, label=label) for label in (5, "6"))
    assert not np.allclose(five, six)
