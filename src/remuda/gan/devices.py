"""Where the two networks of a cell live, and every transfer between them.

The articles on class-parallel training give a process two devices, one per network. Random numbers
are always drawn on the CPU and parcels always leave from it, so what a cell draws and publishes
does not depend on its devices.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from remuda.config import DeviceSettings
from remuda.errors import ConfigError
from remuda.gan.networks import discriminate, generate


@dataclass(frozen=True)
class Devices:
    """The generator's and the discriminator's device."""

    generator: torch.device = torch.device("cpu")  # noqa: RUF009 - immutable
    discriminator: torch.device = torch.device("cpu")  # noqa: RUF009

    @classmethod
    def of(cls, settings: DeviceSettings) -> Devices:
        """The configured devices, if this machine has them."""
        return cls(
            _found("generator", settings.generator), _found("discriminator", settings.discriminator)
        )

    def to_generator(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.generator)

    def to_discriminator(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.discriminator)

    def to_cpu(self, tensor: Tensor) -> Tensor:
        """Samples are scored and parcels are made on the CPU."""
        return tensor.to("cpu")

    def generate(self, network: nn.Module, noise: Tensor, labels: Tensor | None) -> Tensor:
        """A generator's items, on the discriminator's device."""
        there = None if labels is None else self.to_generator(labels)
        return self.to_discriminator(generate(network, self.to_generator(noise), there))

    def discriminate(
        self, network: nn.Module, items: Tensor, labels: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """A discriminator's logits, and its class losses if it is an auxiliary classifier."""
        there = None if labels is None else self.to_discriminator(labels)
        return discriminate(network, self.to_discriminator(items), there)


def _found(role: str, name: str) -> torch.device:
    device = torch.device(name)
    here = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    count = here.get(device.type, 1)
    if (device.index or 0) >= count:
        others = [f"{kind}:0 to {kind}:{most - 1}" for kind, most in here.items() if most]
        raise ConfigError(
            f"devices.{role}={name}: there is no such device here; allowed: "
            f"{', '.join(['cpu', *others])}"
        )
    return device
