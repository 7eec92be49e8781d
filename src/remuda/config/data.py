"""Settings of the data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from remuda.config.base import Settings
from remuda.config.networks import NetworkSettings


class DataSettings(Settings):
    """Which data to train on, and which part of them a cell sees."""

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
        description="train on n items only: the first n (from image folders: of the classes in "
        "turn), or n random points",
    )
    validation: int = Field(
        0, ge=0, description="items held out at random to measure discriminators on as well"
    )
    reference: Literal["train", "test"] = Field(
        "train",
        description="which real items the final scores compare with: those the cells see, or "
        "those no cell sees, i.e. the items held out or else the test split of digits, mnist, "
        "cifar10 or cifar100 (live scores always compare with training items)",
    )
    seed: int = Field(
        0,
        ge=0,
        lt=2**63,
        description="decides which points are drawn or chosen, and which items are held out",
    )
    size: int | None = Field(
        None, ge=4, le=1024, description="image folders: resize to this many pixels per side"
    )
    colour: bool | None = Field(
        None, description="image folders: true for colour, false for grey, null for what they are"
    )
    view: Literal["all", "share", "label"] = Field(
        "all", description="what one cell sees: all data, a share (data dieting), or one label"
    )
    share: float = Field(0.5, gt=0, le=1, description="view share: fraction of the data per cell")
    overlap: bool = Field(
        True, description="view share: cells draw their shares independently; false: disjoint"
    )
    label: int | str | None = Field(None, description="view label: the label, by number or name")

    @model_validator(mode="after")
    def _label_and_share_go_with_view(self) -> DataSettings:
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

    def check_cells(self, cells: int) -> None:
        """Refuse disjoint shares that add up to more than the data."""
        most = 1 / cells
        if self.view == "share" and not self.overlap and self.share > most + 1e-9:
            raise ValueError(
                f"data.share={self.share} is impossible without overlap on {cells} cells; "
                f"allowed: at most {most:.4g}, or data.overlap=true"
            )

    def check_network(self, network: NetworkSettings) -> None:
        """Refuse to measure conditional networks on held-out items."""
        if self.validation and network.is_conditional:
            raise ValueError(
                f"data.validation={self.validation}: held-out items are used without their labels, "
                "which conditional networks need; allowed: 0, or network.condition=none"
            )
