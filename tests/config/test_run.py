"""How cells exchange, and on which devices they are."""

from __future__ import annotations

import pytest

from remuda.config import DeviceSettings
from remuda.config.run import ExchangeSettings


def test_only_an_asynchronous_exchange_can_be_stale() -> None:
    assert ExchangeSettings(mode="async", max_staleness=2).max_staleness == 2
    with pytest.raises(ValueError, match=r"exchange\.max_staleness=2 needs exchange\.mode=async"):
        ExchangeSettings(max_staleness=2)


@pytest.mark.parametrize("name", ["cpu", "mps", "cuda", "cuda:0", "cuda:12"])
def test_devices_have_the_names_torch_gives_them(name: str) -> None:
    assert DeviceSettings(generator=name, discriminator=name).generator == name


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "CPU", "cpu:0", ""])
def test_other_devices_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a device; allowed: cpu, mps, cuda, cuda:0"):
        DeviceSettings(discriminator=name)
