"""torch's optimisers, without the second that their first use would take.

torch wraps some of their methods for its compiler, and the first call of one imports that compiler:
a second of start-up in every worker, for what nothing here uses. Called without the wrapping, the
methods themselves are torch's own, and so is every bit of what they compute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _unwrapped(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method as it was before it was wrapped; as it is, where torch no longer wraps it."""
    unwrapped: Callable[..., Any] = getattr(method, "__wrapped__", method)
    return unwrapped


_add_param_group = _unwrapped(torch.optim.Optimizer.add_param_group)
_adam_step = _unwrapped(torch.optim.Adam.step)
_rmsprop_step = _unwrapped(torch.optim.RMSprop.step)


class Adam(torch.optim.Adam):
    """torch's Adam, which does not load the compiler."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        _add_param_group(self, param_group)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        return _adam_step(self, closure)


class RMSprop(torch.optim.RMSprop):
    """torch's RMSprop, which does not load the compiler."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        _add_param_group(self, param_group)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        return _rmsprop_step(self, closure)
