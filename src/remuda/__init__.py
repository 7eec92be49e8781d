"""remuda: populations of GANs, trained in parallel.

`import remuda` is quick: what needs torch is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.files import VERSION as __version__  # noqa: N811

__all__ = [
    "Engine",
    "Ensemble",
    "PopulationGAN",
    "Timeouts",
    "__version__",
    "load",
    "resume",
    "score",
    "train",
]

if TYPE_CHECKING:
    from remuda.api import (
        Engine,
        Ensemble,
        PopulationGAN,
        Timeouts,
        load,
        resume,
        score,
        train,
    )


def __getattr__(name: str) -> Any:
    if name in __all__:
        from remuda import api

        return getattr(api, name)
    raise AttributeError(f"module 'remuda' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
