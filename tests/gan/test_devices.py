"""Two devices per cell: what is sent where. No accelerator is needed: transfers are watched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from remuda.config import DeviceSettings, validate
from remuda.errors import ConfigError
from remuda.gan.devices import Devices
from remuda.methods import build_method
from remuda.parallel import training
from remuda.runs.prepare import Run
from tests.tiny import Population, gan_tensors, labelled, same, tiny_cell, tiny_config, tiny_dataset


class WatchedDevices(Devices):
    """Remembers, by identity, which tensors were sent where; each transfer makes a copy."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "at", {"generator": [], "discriminator": [], "cpu": []})

    def sent(self, tensor: Tensor, place: str) -> Tensor:
        copied = tensor.clone()
        self.at[place].append(copied)  # type: ignore[attr-defined]
        return copied

    def to_generator(self, tensor: Tensor) -> Tensor:
        return self.sent(tensor, "generator")

    def to_discriminator(self, tensor: Tensor) -> Tensor:
        return self.sent(tensor, "discriminator")

    def to_cpu(self, tensor: Tensor) -> Tensor:
        return self.sent(tensor, "cpu")

    def is_at(self, tensor: Tensor, place: str) -> bool:
        return any(one is tensor for one in self.at[place])  # type: ignore[attr-defined]


SETTINGS: dict[str, Any] = {
    "grid": "1x1",
    "method": {"name": "independent"},
    "network": {"family": "class_dcgan", "width": 8, "latent": 4},
}


@pytest.mark.parametrize("condition", ["none", "projection", "auxiliary"])
def test_each_network_gets_only_what_was_sent_to_its_device(condition: str) -> None:
    classes = None if condition == "none" else 4
    network = {**SETTINGS["network"], "condition": condition, "classes": classes}
    config = tiny_config(**{**SETTINGS, "network": network})
    dataset = labelled(tiny_dataset())
    cell, plain = (tiny_cell(config, dataset) for _ in range(2))
    cell.devices = watched = WatchedDevices()
    seen: dict[str, int] = {"generator": 0, "discriminator": 0}

    def check(place: str) -> Any:
        def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen[place] += 1
            assert all(watched.is_at(tensor, place) for tensor in inputs)

        return hook

    cell.gan.generator.network.register_forward_pre_hook(check("generator"))
    cell.gan.discriminator.network.register_forward_pre_hook(check("discriminator"))
    cell.train(cell.gan)
    plain.train(plain.gan)
    assert seen["generator"] == 2 * 4  # a batch for either network's step
    assert seen["discriminator"] == 3 * 4  # real and fake; and fake once more for the generator
    assert same(gan_tensors(cell.gan), gan_tensors(plain.gan))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cellular", "gap"])
@pytest.mark.parametrize("condition", ["none", "projection", "auxiliary"])
def test_populations_go_through_devices_and_labels_too(method: str, condition: str) -> None:
    """Evaluating neighbours and playing them sends everything to the right place."""
    classes = None if condition == "none" else 4
    network = {**SETTINGS["network"], "condition": condition, "classes": classes}
    config = tiny_config(method={"name": method}, network=network, rounds=2)
    here, plain = (Population(config, labelled(tiny_dataset())) for _ in range(2))
    places = WatchedDevices()
    seen = {"generator": 0, "discriminator": 0}

    def check(place: str) -> Any:
        def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen[place] += 1
            assert all(places.is_at(tensor, place) for tensor in inputs)

        return hook

    for cell in here.cells:
        cell.devices = places
        for role, learner in cell.gan.roles:  # clones and guests are copies, hooks included
            learner.network.register_forward_pre_hook(check(role))
    for _ in range(2):
        here.play()
        plain.play()
    assert min(seen.values()) > 2 * 4 * 4
    for cell, other in zip(here.cells, plain.cells, strict=True):
        assert same(gan_tensors(cell.gan), gan_tensors(other.gan))


def test_samples_and_parcels_come_back_to_the_cpu() -> None:
    cell = tiny_cell(tiny_config(**SETTINGS), tiny_dataset())
    cell.devices = watched = WatchedDevices()
    assert watched.is_at(cell.images(3, "assess"), "cpu")
    tensors = cell.parcel().tensors
    assert len(watched.at["cpu"]) == 1 + len(tensors)  # type: ignore[attr-defined]


def test_each_network_is_put_on_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two names for the CPU stand for two devices."""
    places = Devices(torch.device("cpu"), torch.device("cpu", 0))
    monkeypatch.setattr(Devices, "of", lambda _: places)
    moved: list[tuple[nn.Module, torch.device]] = []
    move = nn.Module.to

    def spy(module: nn.Module, device: torch.device) -> nn.Module:
        moved.append((module, device))
        return move(module, device)

    monkeypatch.setattr(nn.Module, "to", spy)
    cell = tiny_cell(tiny_config(**SETTINGS), tiny_dataset())
    assert moved == [
        (cell.gan.generator.network, places.generator),
        (cell.gan.discriminator.network, places.discriminator),
    ]


def test_moments_live_with_their_weights() -> None:
    cell = tiny_cell(tiny_config(**SETTINGS), tiny_dataset())
    cell.train(cell.gan)
    twin = cell.gan.generator.clone()
    moments = twin.optimiser.state()
    for name, parameter in twin.network.named_parameters():
        for key in ("step", "exp_avg", "exp_avg_sq"):
            moment = moments[f"{key}.{name}"]
            assert moment.device == parameter.device == cell.devices.generator


def test_a_device_that_is_not_here_is_named() -> None:
    name = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(ConfigError, match=rf"devices.discriminator={name}: there is no such"):
        Devices.of(DeviceSettings(discriminator=name))


def test_a_missing_device_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    name = f"cuda:{torch.cuda.device_count()}"
    run = {"dir": str(tmp_path / "run")}
    config = tiny_config(**SETTINGS, devices={"generator": name}, run=run)
    with pytest.raises(ConfigError, match=rf"devices.generator={name}: there is no such"):
        training.train(config, dataset=tiny_dataset())
    assert not (tmp_path / "run").exists()
    Run.prepare(config, tiny_dataset())  # to score what was trained elsewhere needs no device


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"devices": {"generator": "gpu7"}}, r"devices\.generator=gpu7.*allowed: cpu, mps, cuda"),
    ],
)
def test_devices_that_make_no_sense_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        validate(changes)


def test_a_probe_needs_none_of_the_runs_devices() -> None:
    """The master of a job may look at checkpoints without having the workers' devices."""
    name = f"cuda:{torch.cuda.device_count()}"
    config = tiny_config(**SETTINGS, devices={"generator": name})
    method, dataset = build_method(config), tiny_dataset()
    view = method.view(dataset, 0)
    assert method.probe(0, dataset, view).devices == Devices()
    with pytest.raises(ConfigError, match="there is no such device"):
        method.cell(0, dataset, view, None)
