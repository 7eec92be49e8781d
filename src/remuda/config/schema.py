"""The one typed schema: every setting, its default, its limits and its help text.

`remuda config PRESET` prints the descriptions below as comments, and the errors of `load.py` take
the allowed values from these types, so a setting is documented where it is declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    field_validator,
    model_validator,
)

from remuda.errors import ConfigError
from remuda.grid import Grid, GridSchedule

Shape = Annotated[
    tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]],
    PlainSerializer(lambda shape: f"{shape[0]}x{shape[1]}", return_type=str, when_used="json"),
]
Neighbourhood = Literal["von_neumann", "moore", "ring", "table"]
Objective = Literal["minimax", "heuristic", "least_squares", "wasserstein", "relativistic"]
Augmentation = Literal["translation", "cutout", "colour"]
NoiseStep = tuple[Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(ge=0)]]
LossGene = Literal["minimax", "heuristic", "least_squares", "relativistic"]


MOST_CELLS = 100_000
_DEVICE = r"^(cpu|mps|cuda(:[0-9]+)?)$"


class Settings(BaseModel):
    """Base of all settings: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, values: Any) -> Any:
        for name, value in values.items() if isinstance(values, dict) else ():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field and bool not in _parts(field.annotation):
                raise ValueError(
                    f"{name}={str(value).lower()}: true and false are not allowed here"
                )
        return values


def _parts(annotation: Any) -> tuple[Any, ...]:
    return annotation, *get_args(annotation)


def _parse_shape(value: Any) -> Any:
    parts = value.lower().replace("×", "x").split("x") if isinstance(value, str) else value
    if parts is None:
        return None
    try:
        rows, columns = (int(part) for part in parts)
    except (TypeError, ValueError):
        rows = columns = 0
    if rows < 1 or columns < 1:
        raise ValueError("not a grid; allowed: ROWSxCOLUMNS, both at least 1, for example 3x3")
    return rows, columns


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


Prior = Literal["gaussian", "uniform"]
_LATENT = "size of the generator's input"
_PRIOR = "law of the generator's input: gaussian (N(0, 1)) or uniform (on [-1, 1])"
_SPECTRAL_NORM = "normalise the discriminator's weights"


class MlpSettings(Settings):
    """The article's fully connected networks (Table I), and GAP's toy networks."""

    family: Literal["mlp"] = Field("mlp", description="fully connected networks")
    latent: int = Field(64, ge=1, description=_LATENT)
    prior: Prior = Field("gaussian", description=_PRIOR)
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (256, 256), min_length=1, description="neurons of each hidden layer"
    )
    activation: Literal["tanh", "leaky_relu", "relu"] = Field(
        "tanh", description="hidden activation: tanh (the article), leaky_relu (its code) or relu"
    )
    batch_norm: bool = Field(False, description="batch norm after every hidden layer of both")
    output: Literal["tanh", "linear"] = Field(
        "tanh", description="the generator's last activation; data are scaled to [-1, 1]"
    )
    spectral_norm: bool = Field(False, description=_SPECTRAL_NORM)

    @property
    def noise_size(self) -> int:
        """Numbers drawn from the prior for one item."""
        return self.latent


class DcganSettings(Settings):
    """Radford's convolutional networks."""

    family: Literal["dcgan"] = Field("dcgan", description="convolutional networks (DCGAN)")
    latent: int = Field(100, ge=1, description=_LATENT)
    prior: Prior = Field("gaussian", description=_PRIOR)
    width: int = Field(64, ge=1, description="channels of the widest-resolution layer")
    spectral_norm: bool = Field(False, description=_SPECTRAL_NORM)

    @property
    def noise_size(self) -> int:
        """Numbers drawn from the prior for one item."""
        return self.latent


class GranSettings(Settings):
    """GRAN's recurrent generator, with the DCGAN discriminator."""

    family: Literal["gran"] = Field("gran", description="recurrent generator (GRAN)")
    latent: int = Field(100, ge=1, description="size of the generator's input in one step")
    prior: Prior = Field("gaussian", description=_PRIOR)
    steps: int = Field(5, ge=1, le=100, description="strokes an image is painted in")
    redraw: bool = Field(True, description="new noise for every step; false keeps one")
    width: int = Field(
        128,
        ge=1,
        description="channels of the generator's widest-resolution layer (the paper: 128 at 28 "
        "and 64 px, 256 at 32 px)",
    )
    discriminator_width: int = Field(
        64, ge=1, description="width of the DCGAN discriminator, with which it can be swapped"
    )
    spectral_norm: bool = Field(False, description=_SPECTRAL_NORM)

    @property
    def noise_size(self) -> int:
        """Numbers drawn from the prior for one item."""
        return self.latent * (self.steps if self.redraw else 1)


class LabelledSettings(Settings):
    """What networks have in common that may be told an item's label."""

    condition: Literal["none", "projection", "auxiliary"] = Field(
        "none",
        description="whether both networks are told the label: none, projection (the logit depends "
        "on it) or auxiliary (AC-GAN: the discriminator also names it)",
    )
    classes: int | None = Field(
        None, ge=1, description="labels of the data, where the networks are told them"
    )

    @model_validator(mode="after")
    def _classes_go_with_condition(self) -> LabelledSettings:
        if (self.condition != "none") != (self.classes is not None):
            raise ValueError(
                f"network.condition={self.condition} does not go with network.classes="
                f"{self.classes}; allowed: none and null, or a condition and the number of labels"
            )
        return self

    @property
    def told(self) -> int:
        """How many labels the networks can be told; 0 if they are told none."""
        return self.classes or 0


class ClassDcganSettings(LabelledSettings):
    """The networks of the articles on class-parallel training, Tables 1 to 4."""

    family: Literal["class_dcgan"] = Field(
        "class_dcgan", description="the small convolutional networks of class-parallel training"
    )
    latent: int = Field(100, ge=1, description=_LATENT)
    prior: Prior = Field("gaussian", description=_PRIOR)
    width: int = Field(
        128, ge=1, description="channels of the widest layers; the tables' 128, less is quicker"
    )
    first_activation: Literal["relu", "leaky_relu"] = Field(
        "relu", description="after the generator's first layer: relu (CLASS), leaky_relu (W-CLASS)"
    )
    epsilon: float = Field(
        1e-5, gt=0, le=1, description="of batch norm; the articles' tables say 0.8"
    )
    dropout: float = Field(0.25, ge=0, lt=1, description="share dropped in the discriminator")
    batch_norm: bool = Field(
        True, description="batch norm in the discriminator; false for a gradient penalty"
    )
    attention: bool = Field(False, description="a self-attention layer in both networks")
    spectral_norm: bool = Field(False, description=_SPECTRAL_NORM)

    @property
    def noise_size(self) -> int:
        """Numbers drawn from the prior for one item."""
        return self.latent


class ResnetSettings(LabelledSettings):
    """Small residual networks."""

    family: Literal["resnet"] = Field("resnet", description="small residual networks")
    latent: int = Field(100, ge=1, description=_LATENT)
    prior: Prior = Field("gaussian", description=_PRIOR)
    width: int = Field(64, ge=1, description="channels of every layer")
    attention: bool = Field(False, description="a self-attention layer in both networks")
    spectral_norm: bool = Field(True, description=_SPECTRAL_NORM)

    @property
    def noise_size(self) -> int:
        """Numbers drawn from the prior for one item."""
        return self.latent


AnyNetwork = MlpSettings | DcganSettings | GranSettings | ClassDcganSettings | ResnetSettings
NetworkSettings = Annotated[AnyNetwork, Field(discriminator="family")]


_INPUT_NOISE = (
    "Gaussian noise on what discriminators see, as steps [share of the rounds up to which, "
    "standard deviation], e.g. [[0.25, 0.3], [0.5, 0.1]]; none after the last"
)
_GRADIENT_CLIP = "largest norm of a network's gradient; null: any"


def _check_steps(steps: tuple[NoiseStep, ...] | None) -> tuple[NoiseStep, ...] | None:
    ends = [until for until, _ in steps or ()]
    if ends != sorted(set(ends)):
        raise ValueError(
            "the steps must end later and later; for example [[0.25, 0.3], [0.5, 0.1]]"
        )
    return steps


class TrainingSettings(Settings):
    """How a cell trains its GAN."""

    batch_size: int = Field(100, ge=2, description="images per batch")
    batches_per_round: int | None = Field(
        None, ge=1, description="batches a cell trains per round; null is one epoch of its data"
    )
    skip_n_disc_steps: int = Field(
        0, ge=0, description="batches the discriminator sits out after each one it trains on"
    )
    n_critic: int = Field(
        1, ge=1, description="the generator trains on every so many batches (Wasserstein: 5)"
    )
    objective: Objective = Field(
        "heuristic", description="adversarial loss; heuristic is the non-saturating one"
    )
    optimiser: Literal["adam", "rmsprop"] = Field(
        "adam", description="adam, or rmsprop, with which weight clipping was published"
    )
    learning_rate: float = Field(2e-4, gt=0, le=1, description="initial learning rate")
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = Field(
        (0.5, 0.999), description="Adam's decay rates"
    )
    lipschitz: Literal["clip", "gradient_penalty"] = Field(
        "clip", description="objective wasserstein: how the critic is kept Lipschitz"
    )
    clip: float = Field(0.01, gt=0, description="objective wasserstein: bound of the weights")
    penalty: float = Field(10.0, ge=0, description="weight of the gradient penalty")
    gamma: float = Field(1.0, ge=0, description="objective relativistic: weight of R1 and R2")
    augment: tuple[Augmentation, ...] = Field(
        (),
        description="random changes of all images a discriminator trains on (DiffAugment): "
        "translation, cutout, colour; helps where there are few images",
    )
    input_noise: tuple[NoiseStep, ...] = Field((), description=_INPUT_NOISE)
    gradient_clip: float | None = Field(None, gt=0, description=_GRADIENT_CLIP)

    _noise = field_validator("input_noise")(_check_steps)

    def noise_in(self, round: int, rounds: int) -> float:
        """Standard deviation of the input noise in this one of so many rounds."""
        done = (round - 1) / rounds
        return next((sigma for until, sigma in self.input_noise if done < until), 0.0)

    @model_validator(mode="after")
    def _one_side_sits_out(self) -> TrainingSettings:
        if self.n_critic > 1 and self.skip_n_disc_steps > 0:
            raise ValueError(
                f"training.n_critic={self.n_critic} lets the generator sit out and "
                f"training.skip_n_disc_steps={self.skip_n_disc_steps} the discriminator; "
                "allowed: n_critic=1 or skip_n_disc_steps=0"
            )
        return self


class GridChange(Settings):
    """One change of the grid during a run."""

    round: int = Field(ge=1, description="first round with the new grid")
    shape: Shape | None = Field(None, description="new shape; null keeps it")
    neighbourhood: Neighbourhood | None = Field(None, description="new pattern; null keeps it")
    table: tuple[tuple[int, ...], ...] | None = Field(
        None, description="neighbourhood table: the neighbours of each cell"
    )

    _shape = field_validator("shape", mode="before")(_parse_shape)


class GridSettings(Settings):
    """The torus of cells and who neighbours whom."""

    shape: Shape = Field((2, 2), description="rows x columns of the torus, one GAN per cell")
    neighbourhood: Neighbourhood = Field(
        "von_neumann", description="von_neumann (W, N, E, S), moore (8), ring, or table"
    )
    table: tuple[tuple[int, ...], ...] | None = Field(
        None, description="neighbourhood table: the neighbours of each cell"
    )
    schedule: tuple[GridChange, ...] = Field(
        (), description="changes during the run, e.g. [{round: 10, neighbourhood: moore}]"
    )

    _shape = field_validator("shape", mode="before")(_parse_shape)

    @model_validator(mode="after")
    def _is_possible(self) -> GridSettings:
        cells = self.shape[0] * self.shape[1]
        if cells > MOST_CELLS:
            raise ValueError(
                f"grid.shape={self.shape[0]}x{self.shape[1]} has {cells:,} cells; "
                f"allowed: at most {MOST_CELLS:,}"
            )
        self.build()
        return self

    def build(self) -> GridSchedule:
        """The geometry these settings describe."""
        schedule = GridSchedule(Grid(*self.shape, self.neighbourhood, self.table))
        for change in sorted(self.schedule, key=lambda change: change.round):
            grid = schedule.at(change.round)
            try:
                if change.shape is not None:
                    grid = grid.reshaped(*change.shape)
                if change.neighbourhood is not None or change.table is not None:
                    pattern = change.neighbourhood or "table"
                    grid = grid.with_neighbourhood(pattern, change.table)
            except ValueError as error:
                raise ValueError(f"grid.schedule at round {change.round}: {error}") from None
            schedule = schedule.changed(change.round, grid)
        return schedule


class CellularSettings(Settings):
    """Cellular coevolution: Lipizzaner, and Mustangs' loss gene."""

    name: Literal["cellular"] = Field(
        "cellular", description="cellular coevolution on the grid (Lipizzaner, Mustangs)"
    )
    communication: bool = Field(True, description="false: cells never see their neighbours")
    selection: bool = Field(
        True, description="false: a cell always trains, and keeps, its own networks"
    )
    opponents: Literal["subpopulation", "partner"] = Field(
        "subpopulation",
        description="whom a clone plays, batch by batch: any member of the sub-population (the "
        "cell's own place held by the other clone), or only the other clone",
    )
    tournament_size: int = Field(2, ge=1, description="members of the neighbourhood compared")
    fitness: Literal["mean", "worst", "best"] = Field(
        "mean", description="fitness over the opponents; lower is fitter"
    )
    fitness_loss: Objective | None = Field(
        None, description="the one loss fitness is compared under; null is training.objective"
    )
    replacement: Literal["elitist", "comma"] = Field(
        "elitist",
        description="elitist: the fittest of neighbourhood and offspring becomes the centre; "
        "comma: the offspring always does",
    )
    mutation: bool = Field(True, description="false: no learning-rate and no loss mutation")
    mutation_probability: float = Field(
        0.5, ge=0, le=1, description="chance that a learning rate mutates in a round"
    )
    mutation_rate: float = Field(
        1e-4, ge=0, description="standard deviation of the learning-rate step"
    )
    losses: tuple[LossGene, ...] = Field(
        (),
        description="generator losses the loss gene is drawn from each round (Mustangs); "
        "empty: always training.objective",
    )
    mixture_scale: float = Field(
        0.01, ge=0, description="standard deviation of the mixture-weight mutation; 0 turns it off"
    )


class IndependentSettings(Settings):
    """Isolated GANs."""

    name: Literal["independent"] = Field(
        "independent", description="isolated GANs, one per cell: the baseline"
    )
    ensemble: Literal["best", "uniform"] = Field(
        "best", description="the best-scoring GAN alone, or all of them with equal weights"
    )


class GapSettings(Settings):
    """Generative adversarial parallelization: GANs that swap discriminators."""

    name: Literal["gap"] = Field("gap", description="GANs that swap discriminators at random (GAP)")
    swap: Literal["discriminators", "generators", "none"] = Field(
        "discriminators", description="what two matched members give each other; none never swaps"
    )
    swap_every: float | None = Field(
        None,
        gt=0,
        description="epochs between swaps, which makes a round so long; null: rounds are as long "
        "as training.batches_per_round says, and members swap before each but the first",
    )
    optimiser: Literal["stays", "moves"] = Field(
        "stays", description="whether its moments stay with the member or move with the network"
    )
    ensemble: Literal["best", "uniform"] = Field(
        "best", description="the best-scoring GAN alone, or all of them with equal weights"
    )


class ClassParallelSettings(Settings):
    """One GAN per label."""

    name: Literal["class_parallel"] = Field(
        "class_parallel", description="one GAN per label, side by side; the grid follows from them"
    )
    prior: tuple[Annotated[float, Field(gt=0)], ...] | None = Field(
        None,
        min_length=1,
        description="p(y), in the order of the labels: how often each label is drawn; null is as "
        "often as in the data",
    )
    replicas: int = Field(1, ge=1, description="GANs per label, of which the best is kept")
    within: Annotated[CellularSettings | GapSettings, Field(discriminator="name")] | None = Field(
        None, description="how the replicas of a label exchange: {name: cellular}, {name: gap}"
    )

    @model_validator(mode="after")
    def _exchange_needs_replicas(self) -> ClassParallelSettings:
        if self.within is not None and self.replicas < 2:
            raise ValueError(
                f"method.within={self.within.name} needs somebody to exchange with; "
                "allowed: method.replicas from 2 on, or null"
            )
        return self


MethodSettings = Annotated[
    CellularSettings | IndependentSettings | GapSettings | ClassParallelSettings,
    Field(discriminator="name"),
]


class MemberSettings(Settings):
    """What one cell does otherwise than the rest; null is as the rest."""

    network: NetworkSettings | None = Field(None, description="its networks")
    prior: Prior | None = Field(None, description=_PRIOR)
    input_noise: tuple[NoiseStep, ...] | None = Field(None, description=_INPUT_NOISE)
    gradient_clip: float | None = Field(None, gt=0, description=_GRADIENT_CLIP)

    _noise = field_validator("input_noise")(_check_steps)


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
        "cpu", pattern=_DEVICE, description="device of the generator: cpu, cuda, cuda:0, ..., mps"
    )
    discriminator: str = Field("cpu", pattern=_DEVICE, description="device of the discriminator")


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
        if len(self.members) > self.cells:
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
        if not any(isinstance(one, LabelledSettings) and one.told for one in networks):
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
