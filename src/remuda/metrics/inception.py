"""Inception-v3 (Szegedy et al. 2016) as FID is defined on it, and the files its weights come in.

The network of 2015 that Heusel et al. (2017) chose differs from later ones in three things: average
pools leave the padding out of their means, the pool of the last block is a maximum, and images are
enlarged to 299 pixels the way TensorFlow 1 did. Batch norm (no scale, ε = 0.001) becomes part of
the convolutions when the weights are read.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.lib import format as form
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool2d, relu

from remuda.errors import StoreError
from remuda.files import digest, open_regular
from remuda.metrics.tensor_files import decode_tensors

SIDE = 299
EPSILON = 1e-3
CLASSES = 1008
# What the file may hold beyond the network: the layer of an Inception Score, and batch norm's
# scale (one everywhere in this network) and counter, which other programs write.
_HEAD = ("fc.weight", "fc.bias")
_LARGEST_FILE = 400 * 2**20


class Unit(nn.Module):
    """A convolution with its batch norm folded in, and ReLU."""

    def __init__(
        self,
        before: int,
        after: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, kernel, stride, padding)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.conv(x), inplace=True)


def _mean(x: Tensor) -> Tensor:
    return avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


def _largest(x: Tensor) -> Tensor:
    return max_pool2d(x, 3, stride=1, padding=1)


class BlockA(nn.Module):
    """35 pixels wide: 1x1, 5x5, two 3x3, and a pool."""

    def __init__(self, before: int, pool: int) -> None:
        super().__init__()
        self.branch1x1 = Unit(before, 64, 1)
        self.branch5x5_1 = Unit(before, 48, 1)
        self.branch5x5_2 = Unit(48, 64, 5, padding=2)
        self.branch3x3dbl_1 = Unit(before, 64, 1)
        self.branch3x3dbl_2 = Unit(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = Unit(96, 96, 3, padding=1)
        self.branch_pool = Unit(before, pool, 1)

    def forward(self, x: Tensor) -> Tensor:
        five = self.branch5x5_2(self.branch5x5_1(x))
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch1x1(x), five, double, self.branch_pool(_mean(x))], 1)


class BlockB(nn.Module):
    """From 35 pixels to 17."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self.branch3x3 = Unit(before, 384, 3, stride=2)
        self.branch3x3dbl_1 = Unit(before, 64, 1)
        self.branch3x3dbl_2 = Unit(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = Unit(96, 96, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch3x3(x), double, max_pool2d(x, 3, stride=2)], 1)


# Kernel, stride and padding of a 7x7 convolution taken apart.
_ALONG = ((1, 7), 1, (0, 3))
_DOWN = ((7, 1), 1, (3, 0))


class BlockC(nn.Module):
    """17 pixels wide, with the 7x7 convolutions taken apart."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch1x1 = Unit(768, 192, 1)
        self.branch7x7_1 = Unit(768, width, 1)
        self.branch7x7_2 = Unit(width, width, *_ALONG)
        self.branch7x7_3 = Unit(width, 192, *_DOWN)
        self.branch7x7dbl_1 = Unit(768, width, 1)
        self.branch7x7dbl_2 = Unit(width, width, *_DOWN)
        self.branch7x7dbl_3 = Unit(width, width, *_ALONG)
        self.branch7x7dbl_4 = Unit(width, width, *_DOWN)
        self.branch7x7dbl_5 = Unit(width, 192, *_ALONG)
        self.branch_pool = Unit(768, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        seven = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        return torch.cat([self.branch1x1(x), seven, double, self.branch_pool(_mean(x))], 1)


class BlockD(nn.Module):
    """From 17 pixels to 8."""

    def __init__(self) -> None:
        super().__init__()
        self.branch3x3_1 = Unit(768, 192, 1)
        self.branch3x3_2 = Unit(192, 320, 3, stride=2)
        self.branch7x7x3_1 = Unit(768, 192, 1)
        self.branch7x7x3_2 = Unit(192, 192, (1, 7), padding=(0, 3))
        self.branch7x7x3_3 = Unit(192, 192, (7, 1), padding=(3, 0))
        self.branch7x7x3_4 = Unit(192, 192, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        seven = self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x)))
        three = self.branch3x3_2(self.branch3x3_1(x))
        return torch.cat([three, self.branch7x7x3_4(seven), max_pool2d(x, 3, stride=2)], 1)


class BlockE(nn.Module):
    """8 pixels wide, with branches that fork once more."""

    def __init__(self, before: int, *, largest: bool) -> None:
        super().__init__()
        self._pool = _largest if largest else _mean
        self.branch1x1 = Unit(before, 320, 1)
        self.branch3x3_1 = Unit(before, 384, 1)
        self.branch3x3_2a = Unit(384, 384, (1, 3), padding=(0, 1))
        self.branch3x3_2b = Unit(384, 384, (3, 1), padding=(1, 0))
        self.branch3x3dbl_1 = Unit(before, 448, 1)
        self.branch3x3dbl_2 = Unit(448, 384, 3, padding=1)
        self.branch3x3dbl_3a = Unit(384, 384, (1, 3), padding=(0, 1))
        self.branch3x3dbl_3b = Unit(384, 384, (3, 1), padding=(1, 0))
        self.branch_pool = Unit(before, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        three = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        forks = [
            *(self.branch3x3_2a(three), self.branch3x3_2b(three)),
            *(self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double)),
        ]
        return torch.cat([self.branch1x1(x), *forks, self.branch_pool(self._pool(x))], 1)


class InceptionNetwork(nn.Module):
    """Pixels from 0 to 255, of any size, to 2048 features (or the first 64), means over places."""

    def __init__(self) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = Unit(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3 = Unit(32, 32, 3)
        self.Conv2d_2b_3x3 = Unit(32, 64, 3, padding=1)
        self.Conv2d_3b_1x1 = Unit(64, 80, 1)
        self.Conv2d_4a_3x3 = Unit(80, 192, 3)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = (
            BlockA(192, 32),
            BlockA(256, 64),
            BlockA(288, 64),
        )
        self.Mixed_6a = BlockB(288)
        self.Mixed_6b, self.Mixed_6c = BlockC(128), BlockC(160)
        self.Mixed_6d, self.Mixed_6e = BlockC(160), BlockC(192)
        self.Mixed_7a = BlockD()
        self.Mixed_7b, self.Mixed_7c = BlockE(1280, largest=False), BlockE(2048, largest=True)

    def forward(self, pixels: Tensor, depth: int = 2048) -> Tensor:
        x = (enlarged(pixels) - 128) / 128
        x = x.contiguous(memory_format=torch.channels_last)
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = max_pool2d(x, 3, stride=2)
        if depth > 64:
            x = max_pool2d(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)), 3, stride=2)
            x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(x)))
            x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))))
            x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        return x.mean((2, 3))


def enlarged(pixels: Tensor) -> Tensor:
    """Bilinear to 299 pixels as TensorFlow 1 did it: the corner, not the centre, stays in place."""
    height, width = pixels.shape[2:]
    return _resizing(height) @ pixels.float() @ _resizing(width).T


def _resizing(size: int) -> Tensor:
    """(299, size): the share of each old row in each new one."""
    places = torch.arange(SIDE, dtype=torch.float64) * (size / SIDE)
    low = places.floor().long()
    high = (low + 1).clamp_max(size - 1)
    share = places - low
    matrix = torch.zeros(SIDE, size, dtype=torch.float64)
    rows = torch.arange(SIDE)
    matrix[rows, low] += 1 - share
    matrix[rows, high] += share
    return matrix.float()


# ---------------------------------------------------------------------------- files


def read_inception(path: Path) -> tuple[InceptionNetwork, Tensor | None, str]:
    """The network of an .npz or .safetensors file, and the weights of its logits if it has them.

    Every tensor must be there, have its size and be finite; unknown ones are refused. With them
    comes the digest of the file.
    """
    content = _content(path)
    tensors = _tensors(path, content)
    network = InceptionNetwork()
    for name, unit in network.named_modules():
        if isinstance(unit, Unit):
            _fill(unit, name, tensors, path)
    head = {name: tensors.pop(name) for name in _HEAD if name in tensors}
    if tensors:
        raise StoreError(f"{path}: {min(tensors)} is not part of Inception-v3")
    if head and ("fc.weight" not in head or head["fc.weight"].shape != (CLASSES, 2048)):
        raise StoreError(f"{path}: fc.weight is not of shape ({CLASSES}, 2048)")
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # stub lacks it
    return network.eval().requires_grad_(False), head.get("fc.weight"), digest(content)


@torch.no_grad()
def _fill(unit: Unit, name: str, tensors: dict[str, Tensor], path: Path) -> None:
    """Take a unit's tensors out of the dictionary and fold its batch norm into the convolution."""

    def take(part: str, shape: torch.Size) -> Tensor:
        found = tensors.pop(f"{name}.{part}", None)
        if found is None:
            raise StoreError(f"{path}: {name}.{part} is missing")
        if found.shape != shape or not bool(found.isfinite().all()):
            raise StoreError(
                f"{path}: {name}.{part} is {tuple(found.shape)}, or not finite; "
                f"expected {tuple(shape)}"
            )
        return found

    assert unit.conv.bias is not None
    weight, size = take("conv.weight", unit.conv.weight.shape), unit.conv.bias.shape
    bias, mean, variance = (take(f"bn.{part}", size) for part in _NORM)
    scale = tensors.pop(f"{name}.bn.weight", torch.ones(size))
    tensors.pop(f"{name}.bn.num_batches_tracked", None)
    if scale.shape != size or bool((variance < 0).any()):
        raise StoreError(f"{path}: {name}.bn is not a batch norm of {size[0]} channels")
    factor = scale / (variance + EPSILON).sqrt()
    unit.conv.weight.copy_(weight * factor[:, None, None, None])
    unit.conv.bias.copy_(bias - mean * factor)


_NORM = ("bias", "running_mean", "running_var")


def _content(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            content = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        raise StoreError(f"{path}: no such file") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > _LARGEST_FILE:
        raise StoreError(f"{path}: larger than Inception-v3 can be")
    return content


def _tensors(path: Path, content: bytes) -> dict[str, Tensor]:
    """All tensors of the file as float32; nothing in it is executed."""
    try:
        if path.suffix == ".safetensors":
            found = decode_tensors(content)[0]
        else:
            found = dict(_arrays(content))
        return {name: tensor.float() for name, tensor in found.items()}
    # zip, numpy and torch do not say all that damaged files may raise.
    except Exception as error:
        raise StoreError(f"{path}: not a readable .npz or .safetensors file ({error})") from None


def _arrays(content: bytes) -> Iterator[tuple[str, Tensor]]:
    """The arrays of an .npz file, none of which is larger than it can be."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > _LARGEST_FILE:
            raise ValueError("its arrays are larger than those of Inception-v3")
        for entry in entries:
            # What it says of its size is not trusted: neither the archive nor the array itself.
            array = archive.open(entry).read(_LARGEST_FILE)
            header = io.BytesIO(array)
            if form.read_magic(header) == (1, 0):
                shape, _, kind = form.read_array_header_1_0(header)
            else:
                shape, _, kind = form.read_array_header_2_0(header)
            if kind.kind not in "fiu" or math.prod(shape) * kind.itemsize > len(array):
                raise ValueError(f"{entry.filename} is no array of numbers")
            values = np.load(io.BytesIO(array), allow_pickle=False)
            yield entry.filename.removesuffix(".npy"), torch.from_numpy(values)
