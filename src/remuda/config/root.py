"""The one typed schema: every setting, its default, its limits and its help text.

`remuda config PRESET` prints the descriptions declared here and in the modules beside this one as
comments, and error messages take the allowed values from these types, so a setting is documented
where it is declared. What one part requires of the others it checks itself; `Config` only asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from remuda.config.base import Settings
from remuda.config.data import DataSettings
from remuda.config.grid import GridSettings, Neighbourhood
from remuda.config.members import MemberSettings
from remuda.config.methods import CellularSettings, MethodSettings
from remuda.config.networks import MlpSettings, NetworkSettings
from remuda.config.run import DeviceSettings, ExchangeSettings, RunSettings
from remuda.config.score import ScoreSettings
from remuda.config.training import TrainingSettings

Exactness = Literal["warn", "require", "ignore"]
MOST_ROUNDS = 10**9


class Config(Settings):
    """Everything that decides a run."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="name of the run")
    seed: int = Field(0, ge=0, lt=2**63, description="same seed, same weights, wherever it runs")
    rounds: int = Field(10, ge=1, le=MOST_ROUNDS, description="rounds every cell trains")
    threads: int = Field(
        1, ge=1, le=256, description="threads per cell; equal runs need equal numbers of threads"
    )
    portable: bool = Field(
        False,
        description="the same bits on all x86-64 machines with AVX2, at 1.2 to 2 times the CPU "
        "time; needs threads=1 and no GPU",
    )
    exact: Exactness = Field(
        "warn",
        description="where workers, or a resumed run's machine, compute other bits: warn, or "
        "refuse (require)",
    )
    data: DataSettings = Field(default_factory=DataSettings)
    network: NetworkSettings = Field(default_factory=MlpSettings)
    training: TrainingSettings = Field(default_factory=TrainingSettings)
    grid: GridSettings = Field(default_factory=GridSettings)
    method: MethodSettings = Field(default_factory=CellularSettings)
    members: tuple[MemberSettings, ...] = Field(
        (),
        description="how cells differ: cell 0 takes the first entry, and after the last entry "
        "comes the first again, e.g. [{prior: gaussian}, {prior: uniform}]",
    )
    init_from: tuple[str, ...] = Field(
        (),
        description="runs whose GANs the cells start from, in order: run folders, one cell of a "
        "run (runs/a:2), or ensembles, which have generators only",
    )
    exchange: ExchangeSettings = Field(default_factory=ExchangeSettings)
    score: ScoreSettings = Field(default_factory=ScoreSettings)
    devices: DeviceSettings = Field(default_factory=DeviceSettings)
    run: RunSettings = Field(default_factory=RunSettings)

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Config:
        if len(self.members) > self.cells and not self.method.cells_follow_from_data:
            raise ValueError(
                f"members: {len(self.members)} entries for {self.cells} cells; "
                f"allowed: at most {self.cells}"
            )
        if len({(network.is_conditional, network.num_classes) for network in self.networks}) > 1:
            raise ValueError(
                "members: some networks are conditioned on labels and others not, or on another "
                "number of them; allowed: the same network.classes for all"
            )
        self.method.check(self)
        for network in self.networks:
            self.training.check_network(network)
            self.data.check_network(network)
        self.data.check_cells(self.cells)
        self._check_bits()
        return self

    def _check_bits(self) -> None:
        """Equal bits are promised only where they can be had."""
        wanted = "portable=true" if self.portable else f"exact={self.exact}"
        if (self.portable or self.exact == "require") and self.exchange.mode == "async":
            raise ValueError(
                f"{wanted}: with exchange.mode=async no two runs are alike; allowed: sync"
            )
        if self.portable and self.threads > 1:
            raise ValueError(f"portable=true: threads={self.threads}; allowed: threads=1")
        for name, device in self.devices:
            if self.portable and device != "cpu":
                raise ValueError(f"portable=true: devices.{name}={device}; allowed: cpu")

    @property
    def cells(self) -> int:
        """How many GANs the run trains."""
        return self.grid.shape[0] * self.grid.shape[1]

    @property
    def networks(self) -> tuple[NetworkSettings, ...]:
        """The networks of each entry of `members`; without members, those of all cells."""
        return tuple(self.network_of(cell) for cell in range(max(1, len(self.members))))

    @property
    def exactness(self) -> Exactness:
        """What follows if machines compute other bits; asynchronous runs never repeat anyway."""
        return self.exact if self.exchange.mode == "sync" else "ignore"

    def network_of(self, cell: int) -> NetworkSettings:
        """The networks of a cell."""
        return self._member(cell).network_from(self.network)

    def training_of(self, cell: int) -> TrainingSettings:
        """How a cell trains."""
        return self._member(cell).training_from(self.training)

    def for_labels(self, count: int) -> Config:
        """The same run, its networks completed for data with that many labels."""
        # A cell that sees one label has nothing to condition on, and held-out items have none.
        one_label = self.method.cells_follow_from_data or self.data.view == "label"
        usable = 0 if one_label or self.data.validation else count
        network = self.network.for_labels(usable)
        members = tuple(
            member.model_copy(update={"network": member.network.for_labels(usable)})
            if member.network is not None
            else member
            for member in self.members
        )
        return self.model_copy(update={"network": network, "members": members})

    def _member(self, cell: int) -> MemberSettings:
        return self.members[cell % len(self.members)] if self.members else MemberSettings()

    def round_batches(self, items: int) -> int:
        """How many batches make a round for a cell that sees `items` items."""
        # A view that is smaller than a batch is one batch.
        epoch = items // min(self.training.batch_size, items)
        return self.method.round_batches(epoch, self.training.batches_per_round)

    def with_grid_change(
        self,
        round: int,
        *,
        shape: tuple[int, int] | None = None,
        neighbourhood: Neighbourhood | None = None,
        table: Sequence[Sequence[int]] | None = None,
    ) -> Config:
        """The same run with another grid from `round` on: how code changes the grid.

        The change is part of the configuration, so a resumed run makes it too.
        """
        values = self.model_dump()
        change = {"round": round, "shape": shape, "neighbourhood": neighbourhood, "table": table}
        values["grid"]["schedule"] = [*values["grid"]["schedule"], change]
        return Config.model_validate(values)
