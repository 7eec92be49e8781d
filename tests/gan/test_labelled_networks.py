"""Networks that are conditioned on labels; Tables 1 to 4, residual networks, self-attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from remuda.config.networks import (
    ClassDcganSettings,
    DcganSettings,
    GranSettings,
    MlpSettings,
    NetworkSettings,
    ResnetSettings,
)
from remuda.errors import ConfigError
from remuda.gan.networks import (
    build_discriminator,
    build_generator,
    discriminate,
    generate,
    set_stream,
)
from remuda.gan.networks.conditional import ProjectionDiscriminator
from remuda.gan.networks.convolutions import EnlargingConv
from remuda.gan.networks.layers import SelfAttention, StreamDropout

SHAPES = [(1, 28, 28), (3, 32, 32), (3, 64, 64)]
SMALL: dict[str, NetworkSettings] = {
    "mlp": MlpSettings(latent=7, hidden=(9, 8), activation="leaky_relu"),
    "dcgan": DcganSettings(latent=7, width=4),
    "gran": GranSettings(latent=7, width=4, steps=3, discriminator_width=4),
    "class_dcgan": ClassDcganSettings(latent=7),
    "resnet": ResnetSettings(latent=7, width=8),
}


def settings(family: str, **changes: Any) -> NetworkSettings:
    """Small networks of a family, checked anew with the changes."""
    small = SMALL[family]
    return type(small)(**{**small.model_dump(), **changes})


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


every_family = pytest.mark.parametrize("family", SMALL)
classed_family = pytest.mark.parametrize("family", ["class_dcgan", "resnet"])
every_condition = pytest.mark.parametrize("condition", ["none", "projection", "auxiliary"])


@every_family
@every_condition
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_and_a_gradient_for_every_parameter(
    family: str, condition: str, shape: tuple[int, ...]
) -> None:
    classes = None if condition == "none" else 5
    chosen = settings(family, condition=condition, classes=classes)
    generator = build_generator(chosen, shape, stream())
    discriminator = build_discriminator(chosen, shape, stream(1))
    set_stream(discriminator, stream(2))
    labels = torch.arange(4) if classes else None
    items = generate(generator, torch.randn(4, chosen.noise_size, generator=stream(3)), labels)
    assert items.shape == (4, *shape)
    assert items.abs().max() <= 1
    logits, class_loss = discriminate(discriminator, items, labels)
    assert logits.shape == (4,)
    assert (class_loss is not None) == (condition == "auxiliary")
    total = logits.square().sum() + (0 if class_loss is None else class_loss.sum())
    torch.autograd.backward(total)
    for network in (generator, discriminator):
        for name, parameter in network.named_parameters():
            assert parameter.grad is not None, name
            assert bool(parameter.grad.abs().sum() > 0), name


def test_the_tables_at_64_pixels() -> None:
    chosen = ClassDcganSettings()
    body = build_generator(chosen, (3, 64, 64), stream())
    layers = [layer for layer in body.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert [(layer.weight.shape[1], layer.weight.shape[0]) for layer in layers] == [
        *((100, 128 * 16 * 16), (128, 128), (128, 64), (64, 3))
    ]
    scorer = build_discriminator(chosen, (3, 64, 64), stream())
    layers = [layer for layer in scorer.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert [(layer.weight.shape[1], layer.weight.shape[0]) for layer in layers] == [
        *((3, 16), (16, 32), (32, 64), (64, 128), (2048, 1))
    ]
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in scorer.modules()) == 3
    # Table 1 says 8192 for the first layer, which is 128 · 8²: 32 pixels.
    small = build_generator(chosen, (3, 32, 32), stream())
    assert next(iter(small.parameters())).shape == (8192, 100)
    wide = ClassDcganSettings(condition="projection", classes=10)
    assert next(iter(build_generator(wide, (3, 32, 32), stream()).parameters())).shape[1] == 110


def test_the_epsilon_of_the_articles_is_an_option() -> None:
    for epsilon in (1e-5, 0.8):
        network = build_generator(ClassDcganSettings(epsilon=epsilon), (1, 28, 28), stream())
        found = [one.eps for one in network.modules() if isinstance(one, nn.BatchNorm2d)]
        assert found == [1e-5, epsilon, epsilon]


@pytest.mark.parametrize(("first", "kind"), [("relu", nn.ReLU), ("leaky_relu", nn.LeakyReLU)])
def test_the_first_activation_is_an_option(first: str, kind: type[nn.Module]) -> None:
    network = build_generator(
        settings("class_dcgan", first_activation=first), (1, 28, 28), stream()
    )
    assert isinstance(list(network.children())[1], kind)


@classed_family
def test_a_side_that_does_not_fit_is_refused(family: str) -> None:
    for shape in ((3, 30, 30), (2, 32, 32), (3, 32, 28), (5,)):
        with pytest.raises(ConfigError, match=f"network.family={family} cannot make"):
            build_generator(settings(family), shape, stream())


@every_family
def test_labels_change_what_is_made_and_what_is_thought_of_it(family: str) -> None:
    chosen = settings(family, condition="projection", classes=3)
    shape = (1, 28, 28)
    generator = build_generator(chosen, shape, stream()).eval()
    scorer = build_discriminator(chosen, shape, stream()).eval()
    noise = torch.randn(4, chosen.noise_size, generator=stream(3))
    one, two = torch.zeros(4).long(), torch.ones(4).long()
    items = generate(generator, noise, one)
    assert not torch.allclose(items, generate(generator, noise, two))
    assert not torch.allclose(
        discriminate(scorer, items, one)[0], discriminate(scorer, items, two)[0]
    )


@every_family
@pytest.mark.parametrize("deviation", [0, 2])
def test_a_projection_adds_a_product_of_features_and_label(family: str, deviation: int) -> None:
    """Labels only enter at the end: the features, and so the deviation, are the same for all."""
    chosen = settings(family, condition="projection", classes=3, minibatch_stddev=deviation)
    scorer = build_discriminator(chosen, (1, 28, 28), stream()).eval()
    assert isinstance(scorer, ProjectionDiscriminator)
    items = torch.rand(4, 1, 28, 28, generator=stream(1))
    features = scorer.body(items)
    for label in range(3):
        found = discriminate(scorer, items, torch.full((4,), label))[0]
        plain = features @ scorer.head.weight[0] + scorer.head.bias
        assert torch.allclose(found, plain + features @ scorer.embed.weight[:, label], atol=1e-5)


def test_every_step_of_a_gran_sees_the_label() -> None:
    for redraw, codes in ((True, 3), (False, 1)):  # without new noise, one code for all steps
        chosen = settings("gran", condition="projection", classes=3, steps=3, redraw=redraw)
        generator = build_generator(chosen, (1, 28, 28), stream()).eval()
        noise = torch.randn(2, chosen.noise_size, generator=stream(3))
        seen: list[torch.Tensor] = []
        first = next(one for one in generator.modules() if isinstance(one, nn.Linear))
        first.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0]))
        generate(generator, noise, torch.tensor([2, 0]))
        assert len(seen) == codes
        for given in seen:
            assert given[:, 7:].tolist() == [[0, 0, 1], [1, 0, 0]]


def test_an_auxiliary_classifier_says_how_surprising_a_label_is() -> None:
    scorer = build_discriminator(
        settings("class_dcgan", condition="auxiliary", classes=3), (1, 28, 28), stream()
    ).eval()
    items = torch.rand(4, 1, 28, 28)
    class_loss = [discriminate(scorer, items, torch.full((4,), label))[1] for label in range(3)]
    chances = torch.stack([torch.exp(-one) for one in class_loss if one is not None])
    assert torch.allclose(chances.sum(0), torch.ones(4), atol=1e-5)


def test_the_residual_discriminator_has_no_batch_norm() -> None:
    scorer = build_discriminator(
        ResnetSettings(width=8, spectral_norm=False), (3, 32, 32), stream()
    )
    assert not [layer for layer in scorer.modules() if isinstance(layer, nn.BatchNorm2d)]


def test_orthogonal_weights_are_orthogonal_and_repeatable() -> None:
    networks = [build_generator(ResnetSettings(width=8), (1, 28, 28), stream()) for _ in range(2)]
    for one, other in zip(*(network.parameters() for network in networks), strict=True):
        assert torch.equal(one, other)
    weight = next(iter(networks[0].parameters())).detach()  # (8 · 49, 100)
    assert torch.allclose(weight.T @ weight, torch.eye(100), atol=1e-4)


# ---------------------------------------------------------------------------- layers


@classed_family
def test_self_attention_starts_as_nothing_and_adds_few_weights(family: str) -> None:
    shape = (1, 28, 28)
    plain = build_generator(settings(family), shape, stream())
    attentive = build_generator(settings(family, attention=True), shape, stream())
    extra = [layer for layer in attentive.modules() if isinstance(layer, SelfAttention)]
    assert len(extra) == 1
    assert extra[0].gamma.item() == 0
    assert count(attentive) == count(plain) + count(extra[0])
    x = torch.randn(2, extra[0].query.in_channels, 5, 5)
    assert torch.equal(extra[0](x), x)


@pytest.mark.parametrize("side", [8, 16, 32])
def test_residual_networks_attend_at_every_size(side: int) -> None:
    network = build_generator(settings("resnet", attention=True), (1, side, side), stream())
    assert sum(isinstance(layer, SelfAttention) for layer in network.modules()) == 1


def test_self_attention_equals_plain_loops() -> None:
    layer = SelfAttention(16)
    with torch.no_grad():
        layer.gamma.fill_(0.7)
    x = torch.randn(1, 16, 3, 4, generator=stream())
    found = layer(x)[0].detach().numpy()
    query, key, value = (
        part.weight.detach().numpy()[:, :, 0, 0] for part in (layer.query, layer.key, layer.value)
    )
    out = layer.out.weight.detach().numpy()[:, :, 0, 0]
    places = [x[0, :, y, z].numpy() for y in range(3) for z in range(4)]
    for place, here in enumerate(places):
        scores = np.array([(query @ here) @ (key @ there) for there in places])
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        seen = sum(share * (value @ there) for share, there in zip(shares, places, strict=True))
        wanted = here + 0.7 * (out @ seen)
        assert np.allclose(found[:, place // 4, place % 4], wanted, atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 3), (7, 7)])
def test_enlarging_equals_doubling_every_pixel_and_convolving(height: int, width: int) -> None:
    layer = EnlargingConv(3, 5).double()
    plain = nn.Conv2d(3, 5, 3, padding=1).double()
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(2, 3, height, width, generator=stream(), dtype=torch.double)
    mine, yours = x.clone().requires_grad_(), x.clone().requires_grad_()
    found, wanted = layer(mine), plain(yours.repeat_interleave(2, 2).repeat_interleave(2, 3))
    assert torch.allclose(found, wanted, atol=1e-12)
    found.square().sum().backward()
    wanted.square().sum().backward()
    assert mine.grad is not None
    assert yours.grad is not None
    assert torch.allclose(mine.grad, yours.grad, atol=1e-12)
    for own, other in zip(layer.parameters(), plain.parameters(), strict=True):
        assert own.grad is not None
        assert other.grad is not None
        assert torch.allclose(own.grad, other.grad, atol=1e-12)


def test_dropout_draws_from_its_stream_alone() -> None:
    layer = StreamDropout(0.25)
    x = torch.ones(200, 50)
    with pytest.raises(RuntimeError, match="needs a stream"):
        layer(x)
    before = torch.get_rng_state()
    set_stream(layer, stream())
    first, second = layer(x), layer(x)
    set_stream(layer, stream())
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    assert float((first == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    assert float(first.max()) == pytest.approx(1 / 0.75)
    assert torch.equal(layer.eval()(x), x)
