"""Convolutions in channels-last: the functions of torch's own layers, sound wherever they go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from remuda.config import NetworkSettings
from remuda.gan.learner import Learner
from remuda.gan.networks import build_discriminator, build_generator, discriminate, generate
from remuda.gan.networks.convolutions import (
    Conv,
    Doubling,
    DoublingToImage,
    EnlargingConv,
    FromImage,
    ToFeatures,
    ToImage,
    ToPlaces,
    channels_last,
)
from remuda.gan.parcels import decode_parcel
from tests.tiny import (
    DCGAN,
    gan_tensors,
    labelled,
    one_thread,
    same,
    take_step,
    tiny_cell,
    tiny_config,
    tiny_dataset,
)

COLOUR = (3, 8, 8)
LABELS = {"condition": "projection", "classes": 4}
GRAN = {"family": "gran", "latent": 3, "width": 4, "discriminator_width": 4, "steps": 2}
CLASS_DCGAN = {"family": "class_dcgan", "latent": 4, "width": 16}
RESNET = {"family": "resnet", "latent": 4, "width": 4}
FAMILIES: dict[str, dict[str, Any]] = {
    "dcgan": {**DCGAN, "width": 4},
    "dcgan spectral deviation": {**DCGAN, "spectral_norm": True, "minibatch_stddev": 3},
    "dcgan labels": {**DCGAN, **LABELS, "label_norm": True},
    "gran": GRAN,
    "class_dcgan": CLASS_DCGAN,
    "class_dcgan layer norm": {**CLASS_DCGAN, "layer_norm": "discriminator"},
    "resnet": RESNET,
    "resnet labels attention": {**RESNET, **LABELS, "attention": True},
}
every_family = pytest.mark.parametrize(
    "values", FAMILIES.values(), ids=[name.replace(" ", "-") for name in FAMILIES]
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def settings(values: dict[str, Any]) -> NetworkSettings:
    return tiny_config(network=values).network


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def is_channels_last(x: Tensor) -> bool:
    """By its strides, which alone tell torch how a single channel is meant."""
    _, channels, height, width = x.shape
    return x.stride() == (channels * height * width, 1, channels * width, channels)


# ---------------------------------------------------------------------------------- layers


class Enlarge(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(interpolate(x, scale_factor=2))


Pair = tuple[nn.Module, nn.Module]
PAIRS: dict[str, tuple[Callable[[], Pair], tuple[int, ...]]] = {
    "conv": (lambda: (Conv(3, 5, 3, 2, 1), nn.Conv2d(3, 5, 3, 2, 1)), (3, 7, 6)),
    "conv grey": (lambda: (Conv(1, 5, 3, 2, 1), nn.Conv2d(1, 5, 3, 2, 1)), (1, 7, 6)),
    "doubling": (
        lambda: (Doubling(3, 5, bias=False), nn.ConvTranspose2d(3, 5, 5, 2, 2, 1, bias=False)),
        (3, 3, 4),
    ),
    "enlarging": (lambda: (EnlargingConv(3, 5), Enlarge(3, 5, 3, padding=1)), (3, 3, 4)),
    "from grey": (
        lambda: (FromImage(1, 5, bias=False), nn.Conv2d(1, 5, 5, 2, 2, bias=False)),
        (1, 8, 6),
    ),
    "from colour": (lambda: (FromImage(3, 5, bias=True), nn.Conv2d(3, 5, 5, 2, 2)), (3, 8, 6)),
    "doubling to grey": (
        lambda: (DoublingToImage(4, 1, bias=True), nn.ConvTranspose2d(4, 1, 5, 2, 2, 1)),
        (4, 3, 4),
    ),
    "doubling to colour": (
        lambda: (
            DoublingToImage(4, 3, bias=False),
            nn.ConvTranspose2d(4, 3, 5, 2, 2, 1, bias=False),
        ),
        (4, 3, 4),
    ),
    "to grey": (lambda: (ToImage(4, 1), nn.Conv2d(4, 1, 3, padding=1)), (4, 8, 6)),
    "to colour": (lambda: (ToImage(4, 3), nn.Conv2d(4, 3, 3, padding=1)), (4, 8, 6)),
    "features": (lambda: (ToFeatures(), nn.Flatten()), (3, 4, 5)),
    "places": (lambda: (ToPlaces(3, 4), nn.Unflatten(1, (3, 4, 4))), (48,)),
}


@pytest.mark.parametrize(
    ("layers", "shape"), PAIRS.values(), ids=[name.replace(" ", "-") for name in PAIRS]
)
def test_a_layer_is_torchs_own_function_with_both_its_derivatives(
    layers: Callable[[], Pair], shape: tuple[int, ...]
) -> None:
    layer, plain = (module.double() for module in layers())
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(2, *shape, generator=stream(), dtype=torch.float64)
    found, expected = derivatives(layer, x), derivatives(plain, x)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


def derivatives(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Output, gradients, and the gradients of the squared slope, as a penalty takes them."""
    x = x.detach().requires_grad_()
    leaves = [x, *layer.parameters()]
    y = layer(x)
    first = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
    second = torch.autograd.grad(first[0].square().sum(), leaves)
    return [y, *first, *second]


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_is_told_by_the_strides_even_of_a_single_channel(channels: int) -> None:
    x = torch.randn(2, channels, 4, 6, generator=stream())
    assert not is_channels_last(x)
    moved = channels_last(x)
    assert is_channels_last(moved)
    assert torch.equal(moved, x)
    assert channels_last(moved).data_ptr() == moved.data_ptr()  # and nothing is copied twice


# ---------------------------------------------------------------------------------- networks


@every_family
@pytest.mark.parametrize("shape", [(1, 8, 8), COLOUR], ids=["grey", "colour"])
def test_what_flows_between_convolutions_is_never_reordered(
    values: dict[str, Any], shape: tuple[int, ...]
) -> None:
    network = settings(values)
    labels = torch.arange(6) % 4 if network.num_classes else None
    generator = build_generator(network, shape, stream(1))
    discriminator = build_discriminator(network, shape, stream(2))
    seen: list[str] = []
    images = (FromImage, DoublingToImage, ToImage)

    def check(layer: nn.Module, taken: tuple[Tensor, ...], given: Tensor) -> None:
        takes_image = taken[0].shape[1:] == shape
        if not takes_image and taken[0].shape[2] > 1:
            seen.append(type(layer).__name__)
            assert is_channels_last(taken[0]), layer
        if not isinstance(layer, images[1:]) and given.shape[2] > 1:
            assert is_channels_last(given), layer

    for module in [*generator.modules(), *discriminator.modules()]:
        spectral_or_attention = isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1)
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d) and not spectral_or_attention:
            module.register_forward_hook(check)
    for module in discriminator.modules():
        if hasattr(module, "stream"):
            module.stream = stream(3)  # type: ignore[assignment]
    fakes = generate(generator, torch.randn(6, network.noise_size, generator=stream()), labels)
    assert fakes.stride() == torch.empty(6, *shape).stride()  # images are in the ordinary order
    discriminate(discriminator, fakes, labels)
    assert seen


@every_family
def test_training_is_that_of_torchs_own_layers(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = train_in_float64(values)
    for ours, theirs in PLAIN_FORWARD.items():
        monkeypatch.setattr(ours, "forward", theirs)
    expected = train_in_float64(values)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-7, atol=1e-9, msg=name)


def enlarge(layer: nn.Conv2d, x: Tensor) -> Tensor:
    return nn.Conv2d.forward(layer, interpolate(x, scale_factor=2))


PLAIN_FORWARD: dict[type[nn.Module], Callable[..., Tensor]] = {
    Conv: nn.Conv2d.forward,
    FromImage: nn.Conv2d.forward,
    ToImage: nn.Conv2d.forward,
    Doubling: nn.ConvTranspose2d.forward,
    DoublingToImage: nn.ConvTranspose2d.forward,
    EnlargingConv: enlarge,
    ToPlaces: nn.Unflatten.forward,
    ToFeatures: nn.Flatten.forward,
}


def train_in_float64(values: dict[str, Any]) -> dict[str, Tensor]:
    """A few steps of both networks with a penalty, by a plain optimiser."""
    network = settings(values)
    generator = build_generator(network, COLOUR, stream(1)).double()
    discriminator = build_discriminator(network, COLOUR, stream(2)).double()
    labels = torch.arange(6) % 4 if network.num_classes else None
    both = [*generator.parameters(), *discriminator.parameters()]
    optimizer = torch.optim.SGD(both, lr=0.1)
    rng = stream(4)
    for module in discriminator.modules():
        if hasattr(module, "stream"):
            module.stream = rng  # type: ignore[assignment]
    for _ in range(3):
        noise = torch.randn(6, network.noise_size, generator=rng, dtype=torch.float64)
        fakes = generate(generator, noise, labels)
        logits, _ = discriminate(discriminator, fakes, labels)
        (slope,) = torch.autograd.grad(logits.sum(), fakes, create_graph=True)
        optimizer.zero_grad()
        (logits.square().mean() + slope.square().sum()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {
        f"{role}.{name}": value
        for role, module in (("generator", generator), ("discriminator", discriminator))
        for name, value in module.state_dict().items()
    }


# ---------------------------------------------------------------------------------- optimisers

TRAININGS: dict[str, dict[str, Any]] = {
    "adam": {},
    "adam clipped average": {"gradient_clip": 0.5, "average": 3.0},
    "rmsprop": {"optimiser": "rmsprop"},
}
WGAN: dict[str, Any] = {
    "objective": "wasserstein",
    "lipschitz": "clip",
    "optimiser": "rmsprop",
    "learning_rate": 0.0001,
}


@pytest.mark.parametrize(
    "training", TRAININGS.values(), ids=[name.replace(" ", "-") for name in TRAININGS]
)
@pytest.mark.parametrize("restored", [False, True], ids=["fresh", "restored"])
def test_a_learner_takes_the_steps_of_a_plain_optimiser(
    training: dict[str, Any], restored: bool
) -> None:
    """Fused Adam walks through raw memory: a gradient of other strides would be taken wrongly."""
    config = tiny_config(network={**DCGAN, "width": 4}, training=training)
    network = build_generator(config.network, (3, 16, 16), stream(1))
    assert any(type(layer) is Doubling for layer in network.modules())
    learner = Learner(network, config.training, averages=True)
    reference = deepcopy(network)
    kind = torch.optim.RMSprop if config.training.optimiser == "rmsprop" else torch.optim.Adam
    more = {} if kind is torch.optim.RMSprop else {"betas": config.training.betas}
    plain = kind(reference.parameters(), lr=0.01, foreach=False, **more)  # type: ignore[arg-type]
    noise = torch.randn(8, config.network.noise_size, generator=stream(2))
    for step in range(4):
        if restored and step == 2:
            learner = learner.clone()
        take_step(learner, learner.network(noise).square().mean())
        plain.zero_grad()
        reference(noise).square().mean().backward()
        if config.training.gradient_clip is not None:
            nn.utils.clip_grad_norm_(reference.parameters(), config.training.gradient_clip)
        plain.step()
    for (name, ours), theirs in zip(
        learner.network.named_parameters(), reference.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, msg=name)
        for key in learner.optimiser.moments:
            moment = learner.optimiser.state()[f"{key}.{name}"]
            torch.testing.assert_close(moment, plain.state[theirs][key], rtol=1e-3, atol=1e-8)


@every_family
@pytest.mark.parametrize(
    "training", [{"average": 3.0}, WGAN], ids=["adam-average", "rmsprop-clipped"]
)
def test_memory_is_in_the_ordinary_order_and_a_restored_cell_goes_on_with_the_same_bits(
    values: dict[str, Any], training: dict[str, Any]
) -> None:
    config = tiny_config(network=values, training=training)
    cell = tiny_cell(config, labelled(tiny_dataset()))
    cell.train(cell.gan)
    parcel = cell.parcel()
    assert all(value.is_contiguous() for value in parcel.tensors.values())
    for learner in (cell.gan.generator, cell.gan.discriminator):
        held = [*learner.network.parameters(), *learner.optimiser.state().values()]
        assert all(value.is_contiguous() for value in held)
    twin, clone = tiny_cell(config, cell.dataset), cell.gan.clone()
    twin.restore(decode_parcel(parcel.encoded))
    cell.round = twin.round = 2
    for gan in (cell.gan, twin.gan, clone):
        twin.train(gan)
    assert same(gan_tensors(cell.gan), gan_tensors(twin.gan))
    assert same(gan_tensors(cell.gan), gan_tensors(clone))
