"""Inception-v3: what its files must hold, how images reach it, and the published figures."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from remuda.errors import ConfigError, StoreError
from remuda.metrics import (
    InceptionExtractor,
    frechet_distance,
    inception,
    kernel_distance,
    load_inception,
)
from remuda.metrics.inception import InceptionNetwork, Unit, enlarged, read_inception

pytestmark = pytest.mark.slow

Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    """All tensors of a file, small random numbers in half precision."""
    rng = np.random.default_rng(0)
    found: Arrays = {}
    for name, unit in InceptionNetwork().named_modules():
        if isinstance(unit, Unit):
            shape, size = tuple(unit.conv.weight.shape), len(unit.conv.weight)
            deviation = (2 / np.prod(shape[1:])) ** 0.5
            flat = rng.standard_normal(int(np.prod(shape)), np.float32) * deviation
            found[f"{name}.conv.weight"] = flat.reshape(shape).astype(np.float16)
            found[f"{name}.bn.bias"] = rng.normal(0, 0.1, size).astype(np.float32)
            found[f"{name}.bn.running_mean"] = rng.normal(0, 0.1, size).astype(np.float32)
            found[f"{name}.bn.running_var"] = rng.uniform(0.5, 2, size).astype(np.float32)
    return found


@pytest.fixture(scope="module")
def network(arrays: Arrays, tmp_path_factory: pytest.TempPathFactory) -> InceptionNetwork:
    path = tmp_path_factory.mktemp("inception") / "w.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]  # names are no keywords of savez
    return read_inception(path)[0]


def test_batch_norm_is_part_of_the_convolution(arrays: Arrays, network: InceptionNetwork) -> None:
    name, unit = "Mixed_6b.branch7x7_2", network.Mixed_6b.branch7x7_2
    x = torch.randn(2, 128, 9, 9, generator=torch.Generator().manual_seed(0))
    weight = torch.from_numpy(arrays[f"{name}.conv.weight"]).float()
    mean, variance, bias = (
        torch.from_numpy(arrays[f"{name}.bn.{part}"])
        for part in ("running_mean", "running_var", "bias")
    )
    plain = nn.functional.conv2d(x, weight, padding=(0, 3))
    plain = nn.functional.batch_norm(plain, mean, variance, None, bias, eps=0.001).relu()
    torch.testing.assert_close(unit(x), plain, rtol=1e-4, atol=1e-5)


def test_sizes_are_the_papers(network: InceptionNetwork) -> None:
    pixels = torch.zeros(1, 3, 32, 32)
    seen: dict[str, torch.Size] = {}
    hooks = [
        module.register_forward_hook(lambda _m, _i, out, name=name: seen.update({name: out.shape}))
        for name, module in network.named_children()
    ]
    with torch.no_grad():
        assert network(pixels).shape == (1, 2048)
        assert network(pixels, 64).shape == (1, 64)
    for hook in hooks:
        hook.remove()
    assert seen["Mixed_5d"] == (1, 288, 35, 35)
    assert seen["Mixed_6e"] == (1, 768, 17, 17)
    assert seen["Mixed_7c"] == (1, 2048, 8, 8)


def test_images_grow_as_in_tensorflow_1() -> None:
    pixels = torch.rand(1, 3, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    grown = enlarged(pixels)
    assert grown.shape == (1, 3, 299, 299)
    for y, x in ((0, 0), (298, 298), (17, 200), (150, 3), (240, 290)):
        down, right = y * 5 / 299, x * 7 / 299
        top, left = int(down), int(right)
        bottom, far = min(top + 1, 4), min(left + 1, 6)
        upper = pixels[0, 0, top, left].lerp(pixels[0, 0, top, far], right - left)
        lower = pixels[0, 0, bottom, left].lerp(pixels[0, 0, bottom, far], right - left)
        assert float(grown[0, 0, y, x]) == pytest.approx(float(upper.lerp(lower, down - top)))
    whole = torch.rand(1, 3, 299, 299)
    torch.testing.assert_close(enlarged(whole), whole)


def test_every_tensor_must_be_there_fit_and_be_known(
    arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "Mixed_7c.branch_pool.bn.running_mean"
    lacking = {key: value for key, value in arrays.items() if key != name}
    cases = [
        (lacking, f"{name} is missing"),
        ({**arrays, name: np.zeros(3, np.float32)}, rf"{name} is \(3,\)"),
        ({**arrays, name: np.full(192, np.nan, np.float32)}, "not finite"),
        ({**arrays, "Mixed_8a.x": np.zeros(3)}, "Mixed_8a.x is not part of Inception-v3"),
        ({**arrays, "fc.weight": np.zeros((1000, 2048), np.float32)}, r"fc.weight is not of shape"),
    ]
    for case, says in cases:
        # As if read from a file: those of a real network take a second each.
        tensors = {key: torch.from_numpy(value).float() for key, value in case.items()}
        monkeypatch.setattr(inception, "_content", lambda _path: b"")
        monkeypatch.setattr(inception, "_tensors", lambda *_, tensors=tensors: tensors)
        with pytest.raises(StoreError, match=rf"^w.npz: .*{says}"):
            read_inception(Path("w.npz"))


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    (tmp_path / "w.npz").write_bytes(b"PK no zip")
    with pytest.raises(StoreError, match=r"w.npz: not a readable"):
        read_inception(tmp_path / "w.npz")
    np.savez(tmp_path / "w.npz", x=np.array([{}], dtype=object))
    with pytest.raises(StoreError, match=r"w.npz: not a readable .*x.npy is no array of numbers"):
        read_inception(tmp_path / "w.npz")
    with pytest.raises(StoreError, match="no such file"):
        read_inception(tmp_path / "nowhere.safetensors")
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(StoreError, match=r"pipe\.npz: cannot be read: is not a regular file"):
        read_inception(tmp_path / "pipe.npz")


def test_arrays_are_no_larger_than_they_are_in_the_archive(tmp_path: Path) -> None:
    """Neither what the archive says of their sizes is believed, nor what the arrays say."""
    path = tmp_path / "w.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.npy", bytes(500 * 2**20))
    assert path.stat().st_size < 2**20
    with pytest.raises(StoreError, match=r"w\.npz: not a readable .*its arrays are larger"):
        read_inception(path)
    np.savez(path, x=np.zeros(3, np.float32))
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "v.npz", "w") as lying:
        array = archive.read("x.npy").replace(b"(3,), }            ", b"(999999999999,), } ")
        lying.writestr("x.npy", array)
    with pytest.raises(StoreError, match=r"v\.npz: not a readable .*x.npy is no array of numbers"):
        read_inception(tmp_path / "v.npz")


def test_full_weights_give_logits(arrays: Arrays, tmp_path: Path) -> None:
    tensors = {name: torch.from_numpy(value).float() for name, value in arrays.items()}
    head = torch.randn(1008, 2048, generator=torch.Generator().manual_seed(0)) * 0.02
    others = {"fc.bias": torch.zeros(1008), "Conv2d_1a_3x3.bn.weight": torch.ones(32)}
    save_file({**tensors, **others, "fc.weight": head}, tmp_path / "w.safetensors")
    extractor = load_inception("inception", tmp_path / "w.safetensors", [])
    seen = extractor(torch.zeros(2, 1, 28, 28))  # grey images, too
    assert extractor.classes == 1008
    torch.testing.assert_close(seen.logits, seen.features @ head.T)


def test_without_its_last_layer_there_are_no_logits(network: InceptionNetwork) -> None:
    extractor = InceptionExtractor(network, None, "inception-64", "made")
    seen = extractor(torch.zeros(3, 3, 32, 32))
    assert (seen.features.shape, seen.logits.shape) == ((3, 64), (3, 0))
    with pytest.raises(ConfigError, match="allowed: N images of 1 or 3 channels"):
        extractor(torch.zeros(3, 2, 32, 32))


def test_missing_weights_say_where_they_are_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--weights FILE .* inception/inception_fid_fp16.npz"):
        load_inception("inception", None, [tmp_path])


# ---------------------------------------------------------------------------- the real weights


@pytest.fixture(scope="session")
def real_network() -> InceptionNetwork:
    path = Path(os.environ.get("REMUDA_DATA", "")) / "inception" / "inception_fid_fp16.npz"
    if not path.is_file():
        pytest.skip("REMUDA_DATA has no inception/inception_fid_fp16.npz")
    return read_inception(path)[0]


def documented_images(network: InceptionNetwork) -> list[torch.Tensor]:
    """The images of the example in torchmetrics' documentation of FID and KID, seed 42.

    There the network's own initial weights are drawn between the seed and the images.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        for unit in network.modules():
            if isinstance(unit, Unit):
                conv = unit.conv
                nn.Conv2d(conv.in_channels, conv.out_channels, conv.kernel_size, bias=False)  # type: ignore[arg-type]
        nn.Linear(2048, 1008)
        size = (100, 3, 299, 299)
        return [
            torch.randint(low, high, size, dtype=torch.uint8)
            for low, high in ((0, 200), (100, 255))
        ]


@pytest.mark.real_data
def test_the_documented_fid_comes_out(real_network: InceptionNetwork) -> None:
    with torch.no_grad():
        seen = [
            torch.cat([real_network(part, 64) for part in torch.split(images, 10)]).double()
            for images in documented_images(real_network)
        ]
    moments = [(side.mean(0), side.T.cov()) for side in seen]
    # 12.6388 is documented for full precision; these weights are half of it.
    assert frechet_distance(*moments[0], *moments[1]) == pytest.approx(12.6396, abs=5e-4)


@pytest.mark.real_data
def test_the_documented_kid_comes_out(real_network: InceptionNetwork) -> None:
    """Of the first 15 images: all 100, in 100 subsets of 50, give the documented 0.0312 ± 0.0025.

    Those take minutes, and the features of an image do not depend on the others.
    """
    with torch.no_grad():
        real, fake = (real_network(images[:15]) for images in documented_images(real_network))
    found = kernel_distance(real, fake, np.random.default_rng(0), subsets=1, size=15)
    assert found.mean == pytest.approx(0.03008, abs=5e-4)
