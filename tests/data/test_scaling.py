from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remuda.data import PIXELS, Scaling

VALUES = st.floats(0.125, 100, width=32)


@given(st.tuples(VALUES, VALUES), st.tuples(VALUES, VALUES))
def test_points_are_scaled_by_coordinate_and_back(
    scale: tuple[float, float], offset: tuple[float, float]
) -> None:
    scaling = Scaling(scale, offset)
    items = torch.tensor([[-1.0, 1.0], [0.0, 0.5]])
    raw = scaling.to_raw(items)
    for row, item in zip(raw, items, strict=True):
        for axis in (0, 1):
            wanted = torch.tensor(float(item[axis])) * scale[axis] + offset[axis]
            assert float(row[axis]) == pytest.approx(float(wanted), rel=1e-6, abs=1e-4)
    assert torch.allclose(scaling.to_scaled(raw), items, atol=1e-3)


def test_pixels_share_one_pair_and_channels_may_have_their_own() -> None:
    images = torch.linspace(-1, 1, 2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    assert torch.equal(PIXELS.to_raw(images), images * 0.5 + 0.5)
    by_channel = Scaling((1.0, 2.0, 3.0), (0.0, 10.0, 20.0))
    raw = by_channel.to_raw(images)
    assert raw.shape == images.shape
    assert torch.equal(raw[:, 2], images[:, 2] * 3.0 + 20.0)


def test_the_precision_of_the_items_is_kept() -> None:
    items = torch.zeros(1, 2, dtype=torch.float64)
    assert Scaling((1.0, 1.0), (0.0, 0.0)).to_raw(items).dtype == torch.float64
