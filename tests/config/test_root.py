"""The whole configuration: it asks its parts, and knows no kind of method or network by type."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remuda.config import (
    CellularSettings,
    Config,
    IndependentSettings,
    MethodSettings,
    MlpSettings,
    NetworkSettings,
    root,
    validate,
)
from remuda.config.grid import GridChange
from remuda.errors import ConfigError

FOLDER = Path(inspect.getfile(root)).parent
KINDS = {
    kind.__name__ for base in (MethodSettings, NetworkSettings) for kind in base.kinds.values()
}
# The file in which a kind is defined may know it.
ELSEWHERE = sorted(
    path for path in FOLDER.rglob("*.py") if path.name not in ("methods.py", "networks.py")
)


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: path.name)
def test_no_kind_is_asked_for_by_type(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    asked = {
        name.id
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in ("isinstance", "issubclass", "type")
        for name in ast.walk(call)
        if isinstance(name, ast.Name)
    }
    assert not asked & KINDS


def test_the_root_names_a_kind_only_as_a_default() -> None:
    tree = ast.parse(inspect.getsource(root))
    named = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in KINDS]
    assert sorted(named) == ["CellularSettings", "MlpSettings"]
    assert type(Config().method) is CellularSettings
    assert type(Config().network) is MlpSettings


def test_no_module_imports_torch() -> None:
    modules = ", ".join(f"remuda.config.{path.stem}" for path in sorted(FOLDER.glob("[!_]*.py")))
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ---------------------------------------------------------------------------------- cells


def test_a_run_has_a_cell_for_each_place_on_its_grid() -> None:
    assert validate({"grid": "3x5"}).cells == 15


def test_without_members_all_cells_have_the_same_networks() -> None:
    config = validate({"network": {"family": "mlp", "latent": 5}})
    assert config.networks == (config.network,)
    assert config.network_of(0) == config.network_of(3) == config.network
    assert config.training_of(3) is config.training


@pytest.mark.parametrize("condition", ["projection", "auxiliary"])
@pytest.mark.parametrize("method", ["cellular", "gap", "independent"])
def test_networks_can_be_conditioned_on_labels(method: str, condition: str) -> None:
    network = {"family": "resnet", "condition": condition, "classes": 10}
    assert validate({"method": method, "network": network}).network.num_classes == 10


def test_one_label_is_nothing_to_condition_on() -> None:
    network = {"family": "resnet", "condition": "projection", "classes": 10}
    with pytest.raises(ConfigError, match=r"network\.condition: under method=class_parallel"):
        validate({"method": "class_parallel", "network": network})


def test_members_networks_are_checked_as_well() -> None:
    conditional = {"family": "resnet", "condition": "auxiliary", "classes": 3}
    values: dict[str, Any] = {
        "method": "gap",
        "data": {"validation": 5},
        "members": [{"network": conditional}, {"network": {**conditional, "width": 8}}],
    }
    with pytest.raises(ConfigError, match="held-out items are used without their labels"):
        validate(values)


@pytest.mark.parametrize("method", sorted(set(MethodSettings.kinds)))
def test_every_method_can_train_on_a_gpu(method: str) -> None:
    devices = {"generator": "cuda:0", "discriminator": "cuda:1"}
    assert validate({"method": method, "devices": devices}).devices.generator == "cuda:0"


# ---------------------------------------------------------------------------------- bits


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"threads": 4}, "portable=true: threads=4; allowed: threads=1"),
        ({"devices": {"discriminator": "cuda"}}, "portable=true: devices.discriminator=cuda;"),
        ({"exchange": {"mode": "async"}}, "portable=true: with exchange.mode=async no two runs"),
    ],
)
def test_a_portable_run_is_refused_what_makes_bits_differ(
    values: dict[str, Any], says: str
) -> None:
    assert not validate(values).portable
    with pytest.raises(ConfigError, match=re.escape(says)) as info:
        validate({**values, "portable": True})
    assert "\n" not in str(info.value)


def test_exactness_is_about_runs_that_can_be_repeated() -> None:
    asynchronous = {"exchange": {"mode": "async"}}
    assert validate({}).exactness == "warn"
    assert validate({"exact": "require", "threads": 4}).exactness == "require"
    assert validate(asynchronous).exactness == "ignore"
    with pytest.raises(ConfigError, match=r"exact=require: with exchange\.mode=async no two"):
        validate({**asynchronous, "exact": "require"})


# ---------------------------------------------------------------------------------- rounds


@pytest.mark.parametrize(
    ("given", "items", "batches"),
    [(None, 250, 2), (None, 99, 1), (None, 100, 1), (7, 250, 7), (7, 99, 7)],
)
def test_a_round_is_an_epoch_unless_its_length_is_given(
    given: int | None, items: int, batches: int
) -> None:
    config = validate({"training": {"batch_size": 100, "batches_per_round": given}})
    assert config.round_batches(items) == batches


def test_code_can_change_the_grid_from_a_round_on() -> None:
    config = validate({"grid": "2x4", "method": "independent"})
    changed = config.with_grid_change(5, shape=(4, 2)).with_grid_change(9, neighbourhood="moore")
    assert changed.grid.schedule == (
        GridChange(round=5, shape=(4, 2)),
        GridChange(round=9, neighbourhood="moore"),
    )
    assert changed.model_copy(update={"grid": config.grid}) == config
    assert changed.method == IndependentSettings()
    with pytest.raises(ValueError, match="allowed: shapes of 8 cells"):
        config.with_grid_change(5, shape=(3, 3))
