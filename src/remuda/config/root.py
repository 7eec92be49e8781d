"""The one typed schema: every setting, its default, its limits and its help text.

`remuda config PRESET` prints the descriptions below and in the files beside as comments, and the
errors of `load.py` take the allowed values from these types, so a setting is documented where it is
declared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator, model_validator

from remuda.config.base import Settings
from remuda.config.grid import GridSettings, Neighbourhood
from remuda.config.methods import (
    CellularSettings,
    ClassParallelSettings,
    GapSettings,
    MethodSettings,
)
from remuda.config.networks import (
    AnyNetwork,
    ClassDcganSettings,
    LabelledSettings,
    MlpSettings,
    NetworkSettings,
    ResnetSettings,
)
from remuda.config.training import MemberSettings, TrainingSettings
from remuda.errors import ConfigError


class DataSettings(Settings):
    """Which data, and which part of them a cell sees."""

    source: str = Field(
        "digits",
        description="digits (embedded), mnist, cifar10, cifar100, the points r15, mog25 or ring8, "
        "or the path of an idx, npz, npy, "
        "csv or txt file, of a CIFAR folder, or of an image folder with one sub-folder per class",
    )
    dir: str | None = Field(
        None, description="folder to look for data files in (also --data-dir, REMUDA_DATA)"
    )
    split: Literal["train", "test"] = Field("train", description="which split of a named data set")
    limit: int | None = Field(
        None,
        ge=1,
        description="train on only so many items: the first (of image folders: of every class by "
        "turns), of points a random choice",
    )
    validation: int = Field(
        0, ge=0, description="items held out at random, on which discriminators are also measured"
    )
    seed: int = Field(
        0,
        ge=0,
        lt=2**63,
        description="which points are drawn or chosen, and which items are held out",
    )
    size: int | None = Field(None, ge=4, le=1024, description="image folders: resize to this side")
    colour: bool | None = Field(
        None, description="image folders: true is colour, false grey, null what the files have"
    )
    view: Literal["all", "share", "label"] = Field(
        "all", description="what one cell sees: all data, a share (data dieting), or one label"
    )
    share: float = Field(0.5, gt=0, le=1, description="view share: fraction of the data per cell")
    overlap: bool = Field(
        True, description="view share: cells draw shares independently; false makes them disjoint"
    )
    label: int | str | None = Field(None, description="view label: the label, by number or name")

    @model_validator(mode="after")
    def _label_goes_with_view(self) -> DataSettings:
        if self.view == "label" and self.label is None:
            raise ValueError("data.view=label needs data.label, the label's number or name")
        if self.view != "label" and self.label is not None:
            raise ValueError(f"data.label={self.label} needs data.view=label, not {self.view}")
        if self.view == "label" and self.validation:
            raise ValueError(
                f"data.validation={self.validation} holds out items of all labels and does not go "
                "with data.view=label; allowed: 0"
            )
        if self.view != "share" and self.share != DataSettings.model_fields["share"].default:
            raise ValueError(f"data.share={self.share} needs data.view=share, not {self.view}")
        return self


class ScoreSettings(Settings):
    """What generators are measured with."""

    extractor: Literal["auto", "digits", "cifar", "none"] = Field(
        "auto",
        description="network whose features are scored: digits (any 28x28 grey images), cifar "
        "(any 32x32 colour images), none, or auto (digits for digits and mnist, cifar for cifar10)",
    )
    metric: Literal["fid", "fid_logits", "is", "tvd"] = Field(
        "fid", description="what ranks mixtures during and after training"
    )
    samples: int = Field(1000, ge=2, description="images per generator and round")
    final_samples: int = Field(10_000, ge=20, description="images for the scores of the ensemble")


class ExchangeSettings(Settings):
    """How cells read one another."""

    mode: Literal["sync", "async"] = Field(
        "sync",
        description="sync: a round reads the peers' last round, same weights everywhere; async: it "
        "reads their newest parcels and waits for nobody, and no two runs are alike",
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
    """Where the two networks of a cell live."""

    generator: str = Field(
        "cpu", description="device of the generator: cpu, cuda, cuda:0, ..., mps"
    )
    discriminator: str = Field("cpu", description="device of the discriminator")

    @field_validator("*")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if not re.fullmatch(r"cpu|mps|cuda(:[0-9]+)?", name):
            raise ValueError("no device; allowed: cpu, mps, cuda, cuda:0, cuda:1, ...")
        return name


class RunSettings(Settings):
    """Where a run is kept, and what of it."""

    dir: str | None = Field(None, description="run folder; null makes runs/NAME-DATE-TIME")
    checkpoint_every: int = Field(1, ge=1, description="rounds between checkpoints")
    keep_last: int = Field(2, ge=1, description="newest checkpoints that are kept")
    keep_best: bool = Field(True, description="also keep the best-scoring checkpoint")
    sheet_every: int = Field(
        5, ge=0, description="rounds between sample sheets; 0 makes only the last"
    )


class Config(Settings):
    """Everything that decides a run."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="name of the run")
    seed: int = Field(0, ge=0, lt=2**63, description="same seed, same weights, wherever it runs")
    rounds: int = Field(10, ge=1, description="rounds every cell trains")
    threads: int = Field(
        1, ge=1, le=256, description="threads per cell; part of what makes runs equal"
    )
    data: DataSettings = Field(default_factory=DataSettings)
    network: NetworkSettings = Field(default_factory=MlpSettings)
    training: TrainingSettings = Field(default_factory=TrainingSettings)
    grid: GridSettings = Field(default_factory=GridSettings)
    method: MethodSettings = Field(default_factory=CellularSettings)
    members: tuple[MemberSettings, ...] = Field(
        (),
        description="how cells differ: cell 0 takes the first entry, and after the last one comes "
        "the first again, e.g. [{prior: gaussian}, {prior: uniform}]",
    )
    init_from: tuple[str, ...] = Field(
        (),
        description="runs whose GANs the cells start from, in order: run folders, one cell of one "
        "(runs/a:2), or ensembles, which have generators only",
    )
    exchange: ExchangeSettings = Field(default_factory=ExchangeSettings)
    score: ScoreSettings = Field(default_factory=ScoreSettings)
    devices: DeviceSettings = Field(default_factory=DeviceSettings)
    run: RunSettings = Field(default_factory=RunSettings)

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Config:
        if isinstance(self.method, CellularSettings):
            self._check_tournament(self.method)
            self._check_losses(self.method)
        if isinstance(self.method, ClassParallelSettings):
            self._check_class_parallel(self.method)
        self._check_penalty()
        self._check_condition()
        self._check_devices()
        self._check_members()
        if self.data.view == "share" and not self.data.overlap:
            most = 1 / self.cells
            if self.data.share > most + 1e-9:
                raise ValueError(
                    f"data.share={self.data.share} is impossible without overlap on "
                    f"{self.cells} cells; allowed: at most {most:.4g}, or data.overlap=true"
                )
        return self

    def _check_tournament(self, method: CellularSettings) -> None:
        if not (method.selection and method.communication):
            return
        for grid in self.grid.build().grids:
            smallest = min(len(grid.subpopulation(cell)) for cell in range(grid.cells))
            if method.tournament_size > smallest:
                raise ValueError(
                    f"method.tournament_size={method.tournament_size} is larger than the "
                    f"neighbourhood of {smallest} on a {grid.rows}x{grid.columns} "
                    f"{grid.neighbourhood} grid; allowed: 1 to {smallest}, or method=independent"
                )

    def _check_losses(self, method: CellularSettings) -> None:
        fitness_loss = method.fitness_loss or self.training.objective
        critic = self.training.objective == "wasserstein"
        if critic and method.losses:
            raise ValueError(
                f"method.losses={list(method.losses)} does not go with "
                "training.objective=wasserstein, whose critic is no classifier; allowed: []"
            )
        if critic != (fitness_loss == "wasserstein"):
            raise ValueError(
                f"method.fitness_loss={fitness_loss} does not go with training.objective="
                f"{self.training.objective}; allowed: null (the objective itself)"
            )

    def _check_class_parallel(self, method: ClassParallelSettings) -> None:
        if self.data.view != "all":
            raise ValueError(
                f"data.view={self.data.view}: under method=class_parallel a cell sees one label; "
                "allowed: all"
            )
        if self.data.validation:
            raise ValueError(
                f"data.validation={self.data.validation} holds out items of all labels, and under "
                "method=class_parallel a discriminator knows one; allowed: 0"
            )
        if self.grid.schedule or self.grid.neighbourhood == "table":
            raise ValueError(
                "grid.schedule and tables of neighbours: under method=class_parallel the grid "
                "follows from the labels; allowed: neither"
            )
        if isinstance(method.within, CellularSettings):
            self._check_losses(method.within)
            if method.within.tournament_size > method.replicas:
                raise ValueError(
                    f"method.within.tournament_size={method.within.tournament_size} is larger than "
                    f"method.replicas={method.replicas}; allowed: 1 to {method.replicas}"
                )

    def _check_members(self) -> None:
        # The cells of a class-parallel run are known with the data.
        by_label = isinstance(self.method, ClassParallelSettings)
        if len(self.members) > self.cells and not by_label:
            raise ValueError(
                f"members: {len(self.members)} entries for {self.cells} cells; "
                f"allowed: at most {self.cells}"
            )
        if isinstance(self.method, CellularSettings):
            for cell in range(len(self.members)):
                if self.network_of(cell) != self.network_of(0):
                    raise ValueError(
                        f"members[{cell}]: its networks differ from those of members[0]; under "
                        "method=cellular every cell breeds with its neighbours'; allowed: equal "
                        "ones, or method=gap"
                    )

    def _check_penalty(self) -> None:
        for cell in range(max(1, len(self.members))):
            self._check_penalised(self.network_of(cell))

    def _check_penalised(self, network: AnyNetwork) -> None:
        """A gradient penalty is per item; batch norm makes every logit depend on the batch."""
        training = self.training
        penalised = (
            training.objective == "wasserstein" and training.lipschitz == "gradient_penalty"
        ) or (training.objective == "relativistic" and training.gamma > 0)
        batch_norm = not isinstance(network, ResnetSettings)
        if isinstance(network, MlpSettings | ClassDcganSettings):
            batch_norm = network.batch_norm
        if penalised and batch_norm and not network.spectral_norm:
            raise ValueError(
                f"training.objective={training.objective} with a gradient penalty needs a "
                "discriminator without batch norm; allowed: network.spectral_norm=true, "
                "network.batch_norm=false (class_dcgan), or network.family=mlp"
            )

    def _check_devices(self) -> None:
        method = self.method
        inner = method.within if isinstance(method, ClassParallelSettings) else method
        elsewhere = {self.devices.generator, self.devices.discriminator} != {"cpu"}
        if elsewhere and isinstance(inner, CellularSettings):
            raise ValueError(
                f"devices.generator={self.devices.generator}, devices.discriminator="
                f"{self.devices.discriminator}: cellular evaluation is for the processor; "
                "allowed: cpu, or another method"
            )

    def _check_condition(self) -> None:
        networks = [self.network_of(cell) for cell in range(max(1, len(self.members)))]
        if not any(isinstance(one, LabelledSettings) and one.num_classes for one in networks):
            return
        if self.method.name != "independent":
            raise ValueError(
                f"network.condition with method={self.method.name}: only GANs that train alone are "
                "told labels; allowed: network.condition=none, or method=independent"
            )
        if self.data.validation:
            raise ValueError(
                f"data.validation={self.data.validation}: held-out items have no labels to tell "
                "the networks; allowed: 0, or network.condition=none"
            )

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

    def network_of(self, cell: int) -> AnyNetwork:
        """The networks of a cell."""
        member = self._member(cell)
        network = member.network or self.network
        return (
            network if member.prior is None else network.model_copy(update={"prior": member.prior})
        )

    def training_of(self, cell: int) -> TrainingSettings:
        """How a cell trains."""
        changes = {
            name: value
            for name in ("input_noise", "gradient_clip")
            if (value := getattr(self._member(cell), name)) is not None
        }
        return self.training.model_copy(update=changes) if changes else self.training

    def _member(self, cell: int) -> MemberSettings:
        return self.members[cell % len(self.members)] if self.members else MemberSettings()

    def round_batches(self, items: int) -> int:
        """How many batches make a round of a cell that sees so many items."""
        # Where a view may be smaller than a batch, all of it is one.
        epoch = items // min(self.training.batch_size, items)
        given = self.training.batches_per_round
        method = (
            self.method.within if isinstance(self.method, ClassParallelSettings) else self.method
        )
        share = method.swap_every if isinstance(method, GapSettings) else None
        if share is None:
            return given or epoch
        wanted = max(1, round(share * epoch))
        if given not in (None, wanted):
            raise ConfigError(
                f"training.batches_per_round={given}: method.swap_every={share} of the {epoch} "
                f"batches of an epoch are {wanted}; allowed: {wanted}, or null in either"
            )
        return wanted

    @property
    def cells(self) -> int:
        """How many GANs the run trains."""
        return self.grid.shape[0] * self.grid.shape[1]
