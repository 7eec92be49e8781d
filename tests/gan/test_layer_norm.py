"""Layer norm: written out in plain torch, per item under every penalty, and wherever weights go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from remuda.config import NetworkSettings
from remuda.gan.networks import build_discriminator, build_generator
from remuda.gan.networks.convolutions import Conv, FromImage
from remuda.gan.parcels import decode_parcel
from remuda.gan.penalties import PENALTIES
from tests.tiny import DCGAN, gan_tensors, one_thread, same, tiny_cell, tiny_config, tiny_dataset

MLP = {"family": "mlp", "latent": 4, "hidden": [6, 5], "activation": "leaky_relu"}
GRAN = {"family": "gran", "latent": 3, "width": 2, "discriminator_width": 2, "steps": 2}
RESNET = {"family": "resnet", "latent": 4, "width": 4, "spectral_norm": False}
FAMILIES: dict[str, dict[str, Any]] = {
    "mlp": MLP,
    "mlp deviation": {**MLP, "minibatch_stddev": 3},
    "dcgan": DCGAN,
    "gran": GRAN,
    "class_dcgan": {"family": "class_dcgan", "latent": 4, "width": 8},
    "resnet": RESNET,
    "resnet labels": {**RESNET, "condition": "projection", "classes": 2, "attention": True},
}
every_family = pytest.mark.parametrize("network", FAMILIES.values(), ids=FAMILIES)
SHAPE = (1, 16, 16)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def settings(network: dict[str, Any], layer_norm: str = "discriminator") -> NetworkSettings:
    return NetworkSettings.model_validate({**network, "layer_norm": layer_norm})


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def moved(network: nn.Module) -> nn.Module:
    """With scales and shifts that are no longer one and zero."""
    rng = stream(5)
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, nn.LayerNorm | nn.GroupNorm):
                layer.weight.normal_(1, 0.3, generator=rng)
                layer.bias.normal_(0, 0.3, generator=rng)
    return network


def normalised(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Item by item: off its mean, by its deviation, a scale and a shift for each channel."""
    items = []
    for item in x:
        centred = item - item.mean()
        item = centred / (centred.pow(2).mean() + 1e-5).sqrt()
        places = (-1, *(1,) * (item.dim() - 1))
        items.append(item * weight.reshape(places) + bias.reshape(places))
    return torch.stack(items)


def test_a_fully_connected_pair_is_what_one_would_write() -> None:
    generator = moved(build_generator(settings(MLP, "both"), SHAPE, stream(1)))
    w = generator.state_dict()
    noise = torch.randn(7, 4, generator=stream(2))
    x = noise
    for linear, norm in ((0, 1), (3, 4)):
        x = x @ w[f"{linear}.weight"].T + w[f"{linear}.bias"]
        x = normalised(x, w[f"{norm}.weight"], w[f"{norm}.bias"])
        x = torch.where(x > 0, x, 0.2 * x)
    x = torch.tanh(x @ w["6.weight"].T + w["6.bias"]).reshape(7, *SHAPE)
    torch.testing.assert_close(generator(noise), x)

    discriminator = moved(build_discriminator(settings(MLP, "both"), SHAPE, stream(3)))
    w = discriminator.state_dict()
    y = x.flatten(1) @ w["1.weight"].T + w["1.bias"]  # no norm on the first
    y = torch.where(y > 0, y, 0.2 * y)
    y = y @ w["3.weight"].T + w["3.bias"]
    y = normalised(y, w["4.weight"], w["4.bias"])
    y = torch.where(y > 0, y, 0.2 * y)
    y = (y @ w["6.weight"].T + w["6.bias"]).flatten()
    torch.testing.assert_close(discriminator(x), y)


def test_a_convolutional_discriminator_has_it_where_batch_norm_was() -> None:
    network = moved(build_discriminator(settings({**DCGAN, "width": 3}), SHAPE, stream()))
    w = network.state_dict()
    assert [type(layer) for layer in network.children()][:5] == [
        FromImage,
        nn.LeakyReLU,
        Conv,
        nn.GroupNorm,
        nn.LeakyReLU,
    ]
    x = torch.randn(4, *SHAPE, generator=stream(1))
    y = nn.functional.conv2d(x, w["0.weight"], w["0.bias"], stride=2, padding=2)
    y = torch.where(y > 0, y, 0.2 * y)
    y = nn.functional.conv2d(y, w["2.weight"], w["2.bias"], stride=2, padding=2)
    y = normalised(y, w["3.weight"], w["3.bias"])
    y = torch.where(y > 0, y, 0.2 * y).flatten(1)
    y = (y @ w["6.weight"].T + w["6.bias"]).flatten()
    torch.testing.assert_close(network(x), y, rtol=1e-4, atol=1e-6)


@every_family
def test_it_starts_as_the_plain_law_says_and_draws_nothing(network: dict[str, Any]) -> None:
    before = torch.get_rng_state()
    rng = stream(1)
    built = build_discriminator(settings(network), SHAPE, rng)
    norms = [one for one in built.modules() if isinstance(one, nn.LayerNorm | nn.GroupNorm)]
    assert norms
    for norm in norms:
        assert norm.weight.eq(1).all()
        assert norm.bias.eq(0).all()
    assert torch.equal(torch.get_rng_state(), before)
    again = build_discriminator(settings(network), SHAPE, stream(1)).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in built.state_dict().items())


@every_family
def test_a_logit_does_not_depend_on_the_rest_of_the_batch(network: dict[str, Any]) -> None:
    network = {**network, "minibatch_stddev": 0}  # that layer is there to make it depend
    built = moved(build_discriminator(settings(network), SHAPE, stream())).eval()
    labels = [torch.arange(4) % 2] if "classes" in network else []
    items = torch.randn(4, *SHAPE, generator=stream(1))
    whole = built(items, *labels)
    alone = torch.cat(
        [built(items[n : n + 1], *[one[n : n + 1] for one in labels]) for n in range(4)]
    )
    torch.testing.assert_close(whole, alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_of_a_normed_discriminator_equal_those_of_it_written_out(name: str) -> None:
    """Value, and gradient by the weights: torch differentiates its own layer twice."""
    network = moved(build_discriminator(settings(DCGAN), SHAPE, stream(4))).double()
    w = dict(network.named_parameters())

    def plain(x: Tensor) -> Tensor:
        y = nn.functional.conv2d(x, w["0.weight"], w["0.bias"], stride=2, padding=2)
        y = torch.where(y > 0, y, 0.2 * y)
        y = nn.functional.conv2d(y, w["2.weight"], w["2.bias"], stride=2, padding=2)
        y = normalised(y, w["3.weight"], w["3.bias"])
        y = torch.where(y > 0, y, 0.2 * y).flatten(1)
        return (y @ w["6.weight"].T + w["6.bias"]).flatten()

    real, fake = torch.randn(2, 3, *SHAPE, generator=stream(6), dtype=torch.float64)
    found, wanted = (PENALTIES[name](one, real, fake, stream(7)) for one in (network, plain))
    torch.testing.assert_close(found, wanted)
    slopes = [
        torch.autograd.grad(value, list(w.values()), allow_unused=True, materialize_grads=True)
        for value in (found, wanted)
    ]
    for left, right in zip(*slopes, strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize(
    "training",
    [
        {"r1": 0.5, "r1_every": 1},
        {"objective": "relativistic"},
        {"objective": "wasserstein", "lipschitz": "gradient_penalty"},
        {"objective": "wasserstein", "lipschitz": "clip"},
        {"objective": "hinge", "average": 4},
    ],
    ids=str,
)
@every_family
def test_every_family_trains_with_it_and_comes_back_from_a_parcel(
    network: dict[str, Any], training: dict[str, Any]
) -> None:
    config = tiny_config(
        network={**network, "layer_norm": "discriminator"},
        method={"name": "independent"},
        training={"batches_per_round": 2, **training},
    )
    dataset = tiny_dataset(side=16, labels="classes" in network)
    cell, other = (tiny_cell(config, dataset, index) for index in (0, 1))
    cell.train(cell.gan)
    assert cell.gan.is_finite()
    parcel = decode_parcel(cell.parcel().encoded)
    other.restore(parcel)
    assert same(gan_tensors(other.gan), gan_tensors(cell.gan))
    scales = [
        value
        for name, value in cell.gan.discriminator.network.named_parameters()
        if value.dim() == 1 and name.endswith("weight")
    ]
    assert scales
    assert any(not scale.eq(1).all() for scale in scales), "they learn"
