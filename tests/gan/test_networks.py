from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from remuda.config.networks import DcganSettings, GranSettings, MlpSettings
from remuda.config.networks import NetworkSettings as Settings
from remuda.errors import ConfigError
from remuda.gan.networks import (
    build_discriminator,
    build_generator,
    check_shape,
    draw_noise,
    generator_skeleton,
)
from remuda.gan.penalties import gradient_penalty, r1_r2

Case = tuple[Settings, tuple[int, ...]]


def mlp(**values: Any) -> MlpSettings:
    return MlpSettings.model_validate(values)


def dcgan(**values: Any) -> DcganSettings:
    return DcganSettings.model_validate({"width": 4, "latent": 10, **values})


def gran(**values: Any) -> GranSettings:
    small = {"width": 3, "discriminator_width": 4, "latent": 6, "steps": 3}
    return GranSettings.model_validate({**small, **values})


DIGITS = (1, 28, 28)
TOY = {"hidden": (16,) * 4, "latent": 2, "batch_norm": True, "activation": "relu"}
SMALL = {"hidden": (16, 24), "latent": 5}
CASES: dict[str, Case] = {
    "mlp": (mlp(), DIGITS),
    "mlp leaky": (mlp(activation="leaky_relu"), DIGITS),
    "mlp colour": (mlp(**SMALL), (3, 32, 32)),
    "mlp points": (mlp(**SMALL), (2,)),
    "mlp spectral": (mlp(**SMALL, spectral_norm=True), (2,)),
    "dcgan 28 grey": (dcgan(), DIGITS),
    "dcgan 28 colour": (dcgan(), (3, 28, 28)),
    "dcgan 32 colour": (dcgan(), (3, 32, 32)),
    "dcgan 64 grey": (dcgan(width=2), (1, 64, 64)),
    "dcgan 64 colour": (dcgan(width=3), (3, 64, 64)),
    "dcgan spectral": (dcgan(spectral_norm=True), (3, 32, 32)),
    "mlp toy": (mlp(**TOY), (2,)),
    "gran 28 grey": (gran(), DIGITS),
    "gran 32 colour one noise": (gran(redraw=False), (3, 32, 32)),
    "gran 64 colour": (gran(width=2, steps=2), (3, 64, 64)),
    "gran one step": (gran(steps=1), DIGITS),
}
every_case = pytest.mark.parametrize(
    ("settings", "shape"), CASES.values(), ids=[name.replace(" ", "-") for name in CASES]
)
spectral_cases = pytest.mark.parametrize(
    ("settings", "shape"), [CASES["mlp spectral"], CASES["dcgan spectral"]], ids=["mlp", "dcgan"]
)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*size: int, seed: int = 100) -> Tensor:
    return torch.randn(*size, generator=stream(seed))


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def same_state(first: nn.Module, second: nn.Module) -> bool:
    a, b = first.state_dict(), second.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@every_case
def test_generators_make_items_of_the_shape_in_the_range_of_the_data(
    settings: Settings, shape: tuple[int, ...]
) -> None:
    items = build_generator(settings, shape, stream())(100 * normal(6, settings.noise_size))
    assert items.shape == (6, *shape)
    assert items.abs().max() <= 1
    assert items.min() < 0 < items.max()


@every_case
def test_discriminators_give_one_unbounded_logit_per_item(
    settings: Settings, shape: tuple[int, ...]
) -> None:
    network = build_discriminator(settings, shape, stream())
    assert network(normal(20, *shape)).shape == (20,)
    *_, last_bias = (value for name, value in network.named_parameters() if name.endswith("bias"))
    for bias in (-100.0, 100.0):  # neither a sigmoid nor a tanh comes after it
        nn.init.constant_(last_bias, bias)
        assert network(normal(20, *shape)).mean().item() == pytest.approx(bias, abs=10)
    network.eval()
    assert network(normal(1, *shape)).shape == (1,)


@every_case
def test_a_skeleton_is_the_generator_without_its_weights(
    settings: Settings, shape: tuple[int, ...]
) -> None:
    before = torch.random.get_rng_state()
    skeleton = generator_skeleton(settings, shape).state_dict()
    assert torch.equal(torch.random.get_rng_state(), before)
    full = build_generator(settings, shape, stream()).state_dict()
    assert all(value.is_meta for value in skeleton.values())
    assert {name: (value.shape, value.dtype) for name, value in skeleton.items()} == {
        name: (value.shape, value.dtype) for name, value in full.items()
    }


def test_a_skeleton_of_any_size_takes_no_memory() -> None:
    skeleton = generator_skeleton(mlp(hidden=(2_000_000, 2_000_000)), DIGITS)
    assert count(skeleton) > 4e12
    with pytest.raises(ConfigError, match=r"network\.family=dcgan cannot make"):
        generator_skeleton(dcgan(), (1, 27, 27))


@pytest.mark.parametrize("activation", ["tanh", "leaky_relu"])
def test_the_mlp_has_the_parameters_of_table_i(activation: str) -> None:
    settings = mlp(activation=activation)
    sizes = (64, 256, 256, 784)
    expected = sum((before + 1) * after for before, after in pairwise(sizes))
    assert count(build_generator(settings, DIGITS, stream())) == expected == 283_920
    sizes = (784, 256, 256, 1)
    expected = sum((before + 1) * after for before, after in pairwise(sizes))
    assert count(build_discriminator(settings, DIGITS, stream())) == expected == 267_009


def test_the_mlp_discriminator_mirrors_the_generator() -> None:
    network = build_discriminator(mlp(hidden=(16, 24)), (2,), stream())
    sizes = [layer.weight.shape for layer in network.modules() if isinstance(layer, nn.Linear)]
    assert sizes == [(24, 2), (16, 24), (1, 16)]


@pytest.mark.parametrize(("size", "widths"), [(28, [8, 4]), (32, [16, 8, 4]), (64, [32, 16, 8, 4])])
def test_dcgan_channels_double_with_every_halving_of_the_side(size: int, widths: list[int]) -> None:
    shape = (3, size, size)
    generator = build_generator(dcgan(), shape, stream())
    ups = [layer for layer in generator.modules() if isinstance(layer, nn.ConvTranspose2d)]
    assert [layer.in_channels for layer in ups] == widths
    discriminator = build_discriminator(dcgan(), shape, stream())
    downs = [layer for layer in discriminator.modules() if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in downs] == widths[::-1]
    # Batch norm everywhere but on the generator's output and the discriminator's input.
    norms = [layer for layer in generator.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert [layer.num_features for layer in norms] == widths
    norms = [layer for layer in discriminator.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert [layer.num_features for layer in norms] == widths[-2::-1]


@every_case
def test_gradients_reach_every_parameter(settings: Settings, shape: tuple[int, ...]) -> None:
    generator = build_generator(settings, shape, stream(1))
    discriminator = build_discriminator(settings, shape, stream(2))
    discriminator(generator(normal(8, settings.noise_size))).square().mean().backward()
    for network in (generator, discriminator):
        for name, parameter in network.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


@every_case
def test_penalties_can_be_differentiated_twice(settings: Settings, shape: tuple[int, ...]) -> None:
    network = build_discriminator(settings, shape, stream())
    real, fake = normal(2, 4, *shape)
    loss = r1_r2(network, real, fake, stream()) + gradient_penalty(network, real, fake, stream())
    loss.backward()  # type: ignore[no-untyped-call]
    for parameter in network.parameters():
        if parameter.dim() > 1:  # the last bias, for one, does not change the slope
            assert parameter.grad is not None
            assert parameter.grad.isfinite().all()
            assert parameter.grad.abs().sum() > 0


@every_case
@pytest.mark.parametrize("build", [build_generator, build_discriminator])
def test_weights_come_from_the_given_stream_alone(
    build: Any, settings: Settings, shape: tuple[int, ...]
) -> None:
    before = torch.get_rng_state()
    network = build(settings, shape, stream(7))
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1234)
        assert same_state(network, build(settings, shape, stream(7)))
    other = build(settings, shape, stream(8)).state_dict()
    for key, value in network.state_dict().items():
        constant = value.numel() == 1 or (value == value.flatten()[0]).all()
        assert constant or not torch.equal(value, other[key]), key


@every_case
@pytest.mark.parametrize("build", [build_generator, build_discriminator])
def test_two_networks_of_one_stream_differ(
    build: Any, settings: Settings, shape: tuple[int, ...]
) -> None:
    rng = stream()
    assert not same_state(build(settings, shape, rng), build(settings, shape, rng))


@pytest.mark.parametrize("spectral_norm", [False, True])
def test_mlp_weights_follow_the_law_of_pytorch(spectral_norm: bool) -> None:
    network = build_discriminator(mlp(spectral_norm=spectral_norm), DIGITS, stream())
    weights = {
        parameter.shape: parameter for parameter in network.parameters() if parameter.dim() == 2
    }
    biases = [parameter for parameter in network.parameters() if parameter.dim() == 1]
    for (_, fan_in), weight in weights.items():
        bound = 1 / math.sqrt(fan_in)
        assert weight.abs().max() <= bound
        if weight.numel() > 1000:
            assert weight.abs().max() > 0.99 * bound
            assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    for bias, fan_in in zip(biases, (784, 256, 256), strict=True):
        assert 0 < bias.abs().max() <= 1 / math.sqrt(fan_in)


@pytest.mark.parametrize("build", [build_generator, build_discriminator])
def test_dcgan_weights_follow_the_law_of_radford(build: Any) -> None:
    network = build(dcgan(width=32, latent=100), (3, 32, 32), stream())
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert layer.weight.mean().item() == pytest.approx(1, abs=0.02)
            assert layer.weight.std().item() == pytest.approx(0.02, rel=0.5)
            state = layer.state_dict()
            assert state["running_mean"].eq(0).all()
            assert state["running_var"].eq(1).all()
            assert state["num_batches_tracked"].eq(0)
        elif isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            assert layer.weight.mean().item() == pytest.approx(0, abs=0.002)
            assert layer.weight.std().item() == pytest.approx(0.02, rel=0.05)
        bias = getattr(layer, "bias", None)
        assert bias is None or (bias == 0).all()


@every_case
def test_in_evaluation_an_output_does_not_depend_on_the_rest_of_the_batch(
    settings: Settings, shape: tuple[int, ...]
) -> None:
    generator = build_generator(settings, shape, stream(1))
    discriminator = build_discriminator(settings, shape, stream(2))
    noise, items = normal(6, settings.noise_size), normal(6, *shape)
    generator(noise), discriminator(items)  # so that running statistics are not the initial ones
    generator.eval(), discriminator.eval()
    torch.testing.assert_close(generator(noise)[:1], generator(noise[:1]))
    torch.testing.assert_close(discriminator(items)[:1], discriminator(items[:1]))


@spectral_cases
def test_spectral_norm_brings_the_largest_singular_value_near_one(
    settings: Settings, shape: tuple[int, ...]
) -> None:
    network = build_discriminator(settings, shape, stream())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(50)  # far from normalised, unless the norm is at work
        for _ in range(50):
            network(normal(4, *shape))
    network.eval()
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    assert len(layers) >= 3
    for layer in layers:
        largest = torch.linalg.matrix_norm(layer.weight.flatten(1), 2)
        assert largest.item() == pytest.approx(1, abs=0.02)


@spectral_cases
def test_spectral_norm_is_near_its_value_before_the_first_step(
    settings: Settings, shape: tuple[int, ...]
) -> None:
    network = build_discriminator(settings, shape, stream()).eval()
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            largest = torch.linalg.matrix_norm(layer.weight.flatten(1), 2)
            assert largest.item() == pytest.approx(1, abs=0.1)


def test_spectral_norm_takes_the_place_of_batch_norm_and_leaves_generators_alone() -> None:
    settings = dcgan(spectral_norm=True)
    discriminator = build_discriminator(settings, (3, 32, 32), stream())
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in discriminator.modules())
    generator = build_generator(settings, (3, 32, 32), stream())
    assert same_state(generator, build_generator(dcgan(), (3, 32, 32), stream()))


@every_case
@pytest.mark.parametrize("build", [build_generator, build_discriminator])
def test_a_state_dict_or_a_deep_copy_carries_the_whole_network(
    build: Any, settings: Settings, shape: tuple[int, ...]
) -> None:
    network = build(settings, shape, stream(1))
    items = normal(4, settings.noise_size) if build is build_generator else normal(4, *shape)
    network(items)  # moves the running statistics and the singular vectors
    loaded = build(settings, shape, stream(2))
    loaded.load_state_dict(network.state_dict())
    copied = deepcopy(network)
    for other in (loaded, copied):
        assert same_state(network, other)
    expected = network(items)
    for other in (loaded, copied):
        assert torch.equal(other(items), expected)
        assert same_state(network, other)  # and they move on alike
    before = {key: value.clone() for key, value in network.state_dict().items()}
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


@spectral_cases
def test_the_singular_vectors_are_in_the_state_dict(
    settings: Settings, shape: tuple[int, ...]
) -> None:
    state = build_discriminator(settings, shape, stream()).state_dict()
    vectors = [value for key, value in state.items() if key.endswith(("._u", "._v"))]
    weights = [key for key in state if key.endswith("original")]
    assert len(vectors) == 2 * len(weights) > 0
    assert all(vector.norm().item() == pytest.approx(1, abs=1e-5) for vector in vectors)


@pytest.mark.parametrize(
    "shape",
    [(2,), (28, 28), (1, 30, 30), (1, 27, 27), (2, 28, 28), (1, 28, 32), (3, 4, 4), (1, 0, 0), ()],
)
def test_dcgan_refuses_what_it_cannot_make_naming_key_value_and_allowed(
    shape: tuple[int, ...],
) -> None:
    for refuse in (
        lambda: check_shape(dcgan(), shape),
        lambda: build_generator(dcgan(), shape, stream()),
        lambda: build_discriminator(dcgan(), shape, stream()),
    ):
        with pytest.raises(ConfigError) as error:
            refuse()
        message = str(error.value)
        assert "network.family=dcgan" in message
        assert str(shape) in message
        assert "allowed: square images" in message


@pytest.mark.parametrize("size", [8, 16, 20, 24, 28, 32, 40, 48, 56, 64, 128])
def test_dcgan_accepts_every_side_that_halves_down_to_4_to_7(size: int) -> None:
    check_shape(dcgan(), (1, size, size))


def test_mlp_accepts_any_shape_but_an_empty_one() -> None:
    possible: list[tuple[int, ...]] = [(2,), (7, 3), (1, 30, 30)]
    for shape in possible:
        check_shape(mlp(), shape)
    empty: list[tuple[int, ...]] = [(), (3, 0)]
    for shape in empty:
        with pytest.raises(ConfigError, match=r"network\.family=mlp"):
            check_shape(mlp(), shape)


@pytest.mark.slow
def test_threads_that_build_at_once_draw_what_they_would_draw_alone() -> None:
    settings, shape = CASES["mlp spectral"]
    before = torch.get_rng_state()
    with ThreadPoolExecutor(8) as pool:
        built = list(
            pool.map(lambda seed: build_discriminator(settings, shape, stream(seed)), range(40))
        )
    assert torch.equal(torch.get_rng_state(), before)
    for seed, network in enumerate(built):
        assert same_state(network, build_discriminator(settings, shape, stream(seed)))


# ---------------------------------------------------------------------------------- toy, GRAN


def test_the_toy_networks_have_four_batch_norm_relu_layers_and_no_bound() -> None:
    settings = mlp(**TOY, output="linear")
    layer = [nn.Linear, nn.BatchNorm1d, nn.ReLU]
    for build, first in ((build_generator, layer), (build_discriminator, [nn.Linear, nn.ReLU])):
        network = build(settings, (2,), stream())
        kinds = [type(part) for part in network.modules() if not isinstance(part, nn.Flatten)]
        assert kinds[1:] == [*first, *layer * 3, nn.Linear]
    items = build_generator(settings, (2,), stream()).eval()(1000 * normal(50, 2))
    assert items.abs().max() > 1


def test_a_toy_discriminator_sees_that_all_items_are_too_large() -> None:
    """In batches of their own, which batch norm at the input would make equal."""
    network = build_discriminator(mlp(**TOY), (2,), stream())
    items = normal(64, 2)
    assert (network(items) - network(3 * items)).abs().mean() > 0.01


def test_spectral_norm_takes_the_place_of_batch_norm_in_the_toy_discriminator_too() -> None:
    network = build_discriminator(mlp(**TOY, spectral_norm=True), (2,), stream())
    assert not any(isinstance(layer, nn.BatchNorm1d) for layer in network.modules())


def slow_gran(settings: GranSettings, state: dict[str, Tensor], noise: Tensor, size: int) -> Tensor:
    """The recurrence written out, image by image, in evaluation mode."""

    def norm(values: Tensor, name: str) -> Tensor:
        one_each = (-1, *(1,) * (values.dim() - 1))
        mean, var, weight, bias = (
            state[f"{name}.{key}"].reshape(one_each)
            for key in ("running_mean", "running_var", "weight", "bias")
        )
        return (values - mean) / (var + 1e-5).sqrt() * weight + bias

    layers = {28: 2, 32: 3, 64: 4}[size]
    start = size // 2**layers
    images = []
    for row in noise:
        code = torch.zeros(100)
        total = torch.zeros(())
        for step in range(settings.steps):
            first = step * settings.latent if settings.redraw else 0
            z = row[first : first + settings.latent]
            seed = norm(state["noise_code.0.weight"] @ z, "noise_code.1").tanh()
            hidden = state["decoder.0.weight"] @ torch.cat((seed, code))
            hidden = norm(hidden, "decoder.1").relu().reshape(-1, start, start)
            for layer in range(layers):
                name = f"decoder.{4 + 2 * layer}"
                weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
                hidden = nn.functional.conv_transpose2d(
                    hidden, weight, bias, stride=2, padding=2, output_padding=1
                )
                if layer + 1 < layers:
                    hidden = hidden.relu()
            total = total + hidden
            if step + 1 == settings.steps:
                break
            for layer in range(layers):
                name = f"encoder.{3 * layer}"
                bias_or_none = state.get(f"{name}.bias")
                hidden = nn.functional.conv2d(
                    hidden, state[f"{name}.weight"], bias_or_none, stride=2, padding=2
                )
                if layer + 1 < layers:
                    hidden = norm(hidden, f"encoder.{3 * layer + 1}").relu()
            last = 3 * (layers - 1) + 2
            code = state[f"encoder.{last}.weight"] @ hidden.flatten()
            code = norm(code, f"encoder.{last + 1}").tanh()
        images.append(2 * torch.sigmoid(total) - 1)
    return torch.stack(images)


@pytest.mark.parametrize("redraw", [True, False])
@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32), (1, 64)])
def test_gran_is_the_recurrence_of_the_paper(redraw: bool, channels: int, size: int) -> None:
    settings = gran(redraw=redraw, width=2)
    network = build_generator(settings, (channels, size, size), stream()).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(5)  # far enough from zero that no stroke is a plain grey
        noise = draw_noise(settings, 16, stream(5)).double()
        network(noise)  # so that running statistics are not the initial ones
        expected = slow_gran(settings, network.state_dict(), noise[:3], size)
        items = network.eval()(noise[:3])
    assert items.std() > 0.05
    torch.testing.assert_close(items, expected, rtol=1e-9, atol=1e-9)


def test_gran_has_the_sizes_of_the_paper_at_32_pixels() -> None:
    network = generator_skeleton(GranSettings.model_validate({"width": 256}), (3, 32, 32))
    ups = [layer for layer in network.modules() if isinstance(layer, nn.ConvTranspose2d)]
    downs = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    full = [layer.weight.shape for layer in network.modules() if isinstance(layer, nn.Linear)]
    assert [(layer.in_channels, layer.out_channels) for layer in ups] == [
        (1024, 512),
        (512, 256),
        (256, 3),
    ]
    assert [layer.out_channels for layer in downs] == [256, 512, 1024]
    assert full == [(100, 100), (16384, 200), (100, 16384)]


def test_gran_and_dcgan_discriminators_can_be_swapped() -> None:
    own = build_discriminator(gran(discriminator_width=4), DIGITS, stream())
    other = build_discriminator(dcgan(width=4), DIGITS, stream(1))
    own.load_state_dict(other.state_dict())
    assert same_state(own, other)


def test_noise_is_normal_or_uniform_and_as_much_as_the_generator_needs() -> None:
    assert draw_noise(gran(steps=3), 5, stream()).shape == (5, 18)
    assert draw_noise(gran(steps=3, redraw=False), 5, stream()).shape == (5, 6)
    flat = draw_noise(mlp(prior="uniform"), 1000, stream())
    assert flat.abs().max() <= 1
    assert flat.var().item() == pytest.approx(1 / 3, rel=0.02)
    assert draw_noise(mlp(), 1000, stream()).var().item() == pytest.approx(1, rel=0.02)
