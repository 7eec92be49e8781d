"""Settings of how a run is carried out: the exchange between cells, devices, and the run folder."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from remuda.config.base import Settings


class ExchangeSettings(Settings):
    """How cells read one another's parcels."""

    mode: Literal["sync", "async"] = Field(
        "sync",
        description="sync: a round reads what peers published in the round before, with the same "
        "weights on every engine; async: it reads their newest parcels without waiting, and no two "
        "runs are alike",
    )
    max_staleness: int | None = Field(
        None,
        ge=0,
        description="async: wait for peers that are more rounds behind than this; null never waits",
    )

    @model_validator(mode="after")
    def _only_async_is_stale(self) -> ExchangeSettings:
        if self.mode == "sync" and self.max_staleness is not None:
            raise ValueError(
                f"exchange.max_staleness={self.max_staleness} needs exchange.mode=async, not sync"
            )
        return self


class DeviceSettings(Settings):
    """Which devices the two networks of a cell are on."""

    generator: str = Field(
        "cpu", description="device of the generator: cpu, cuda, cuda:0, ..., mps"
    )
    discriminator: str = Field("cpu", description="device of the discriminator")

    @field_validator("*")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if not re.fullmatch(r"cpu|mps|cuda(:[0-9]+)?", name):
            raise ValueError("not a device; allowed: cpu, mps, cuda, cuda:0, cuda:1, ...")
        return name


class RunSettings(Settings):
    """Where a run is kept, and what is kept of it."""

    dir: str | None = Field(None, description="run folder; null makes runs/NAME-DATE-TIME")
    checkpoint_every: int = Field(1, ge=1, description="rounds between checkpoints")
    keep_last: int = Field(2, ge=1, description="how many of the newest checkpoints to keep")
    keep_best: bool = Field(True, description="also keep the best-scoring checkpoint")
    sheet_every: int = Field(
        5, ge=0, description="rounds between sample sheets; 0 makes only the last"
    )
