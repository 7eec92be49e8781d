"""A new data format or named data set is one object and one registry line: here, toys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from remuda.config import DataSettings, load_config
from remuda.data import Dataset, dataset_from_array
from remuda.data.formats import FORMATS, NAMED, Format, NamedSet
from remuda.errors import ConfigError, DataError
from remuda.parallel import training
from tests.data.samples import load
from tests.tiny_runs import tiny

MAGIC = b"TOY!"


def read_toy(path: Path, settings: DataSettings) -> Dataset:
    """Square grey images of bytes; their side follows the magic."""
    side, *pixels = path.read_bytes()[len(MAGIC) :]
    side = settings.size or side
    images = np.array(pixels, np.uint8).reshape(-1, side, side)
    return dataset_from_array(images, name=path.name)


def draw_toy(settings: DataSettings) -> Dataset:
    rng = np.random.default_rng(settings.seed)
    return dataset_from_array(rng.normal(size=(60, 2)), name="toy")


TOY_FILE = Format(".toy", read_toy, first_bytes=(MAGIC,), file_names=("*.toy",), resizes=True)
TOY_FOLDER = Format(
    "a toy folder",
    lambda path, settings: read_toy(path / "toy", settings),
    is_folder=lambda path: (path / "toy").is_file(),
)
TOY_SET = NamedSet("toyset", draw_toy, has_test_split=True)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMED, TOY_SET.name, TOY_SET)
    monkeypatch.setattr("remuda.data.load.FORMATS", [TOY_FILE, TOY_FOLDER, *FORMATS])


@pytest.mark.usefixtures("toys")
def test_a_registered_format_is_recognised_by_content_by_name_and_as_a_folder(
    tmp_path: Path,
) -> None:
    content = MAGIC + bytes([2, *range(12)])
    (tmp_path / "renamed.csv").write_bytes(content)
    assert load(tmp_path / "renamed.csv").items.shape == (3, 1, 2, 2)
    (tmp_path / "b.toy").write_bytes(b"toy?" + content[4:])
    assert load(tmp_path / "b.toy", limit=2).items.shape == (2, 1, 2, 2)
    (tmp_path / "toy").write_bytes(content)
    assert load(tmp_path).name == "toy"
    (tmp_path / "c.toy").write_bytes(MAGIC + bytes([2, *range(16)]))
    assert load(tmp_path / "c.toy", size=4).items.shape == (1, 1, 4, 4)


@pytest.mark.usefixtures("toys")
def test_messages_list_what_is_registered(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean toyset\? allowed: .*ring8, toyset, or a"):
        load("toyse")
    (tmp_path / "x").write_bytes(b"what?")
    with pytest.raises(DataError, match=r"x: not a known format; allowed: \.toy, a toy folder, "):
        load(tmp_path / "x")
    with pytest.raises(ConfigError, match=r"data\.size=8 .* only to \.toy, a folder with one"):
        load("toyset", size=8)
    with pytest.raises(DataError, match="cifar100, toyset have both"):
        load("ring8", split="test")
    assert len(load("toyset", split="test")) == 60


@pytest.mark.slow
@pytest.mark.usefixtures("toys")
def test_a_registered_set_can_be_trained_on(tmp_path: Path) -> None:
    preset, *overrides = tiny("toyset", tmp_path / "run", "score.extractor=none", "rounds=1")
    result = training.train(load_config(preset, overrides))
    assert result.ensemble.sample(5).shape == (5, 2)
