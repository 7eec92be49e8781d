"""Analysis of variance over labels: do the classes of a data set differ, channel by channel?

Two statistics. The *papers'* one (CLASS and W-CLASS) sets the variance of the classes' mean pixels
against the variance of single pixels, with image counts for degrees of freedom; it is not an F
statistic, and is here only to compare with their tables. The *proper* one is the usual one-way
analysis of variance of the images' mean values, with its p and the effect size η².
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from remuda.errors import DataError
from remuda.metrics.items import RealItems

_CHUNK = 2000
SIGNIFICANT = 0.01
# Cohen's (1988) medium effect: less than this, and labels hardly tell images apart by it.
MEDIUM_EFFECT = 0.06


@dataclass(frozen=True)
class ChannelAnova:
    """Both statistics for one channel (or, of point data, one coordinate)."""

    papers: float
    f: float
    p: float
    eta_squared: float


@dataclass(frozen=True)
class Anova:
    """How much of the values of a data set its labels explain."""

    data: str
    items: int
    classes: int
    channels: tuple[ChannelAnova, ...]

    @property
    def meaning(self) -> str:
        """In a sentence, what this means for training one GAN per label."""
        best = max(self.channels, key=lambda channel: channel.eta_squared)
        share = f"labels explain up to {best.eta_squared:.1%} of the variance of image means"
        if best.p >= SIGNIFICANT:
            return (
                "no difference between the classes shows in their mean values (smallest "
                f"p {best.p:.2g}), so by this measure one GAN per label only sees less data each"
            )
        if best.eta_squared < MEDIUM_EFFECT:
            return (
                f"the {share}, a real but small part: one GAN per label faces almost as "
                "varied a task as one GAN for all, on a share of the data"
            )
        return (
            f"the {share}: the classes differ, so one GAN per label has a "
            "simpler distribution to learn than one GAN for all"
        )


def anova(items: RealItems, labels: torch.Tensor | None, name: str) -> Anova:
    """Both statistics for every channel of a labelled data set."""
    if labels is None:
        raise DataError(f"{name}: has no labels, so there are no classes to compare")
    # A class without items has no mean, so it is not a group of an analysis of variance.
    present, groups = torch.unique(labels, return_inverse=True)
    count, classes = len(items), len(present)
    if classes < 2 or count <= classes:
        raise DataError(
            f"{name}: {count} items in {classes} classes; an analysis of variance needs "
            "at least two classes, and more items than classes"
        )
    means, squares = _moments(items)
    channels = tuple(
        _channel(means[:, channel], squares[:, channel], groups, classes)
        for channel in range(means.shape[1])
    )
    return Anova(name, count, classes, channels)


def _moments(items: RealItems) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and mean square of every item, (items, channels); F does not depend on the scaling."""
    parts = []
    for start in range(0, len(items), _CHUNK):
        chunk = items[start : start + _CHUNK]
        values = chunk.double().flatten(2) if chunk.ndim > 2 else chunk.double()[:, :, None]
        parts.append((values.mean(2), values.square().mean(2)))
    return torch.cat([mean for mean, _ in parts]), torch.cat([square for _, square in parts])


def _channel(
    means: torch.Tensor, squares: torch.Tensor, labels: torch.Tensor, classes: int
) -> ChannelAnova:
    count = len(means)
    sizes = torch.bincount(labels, minlength=classes).double()
    class_means = torch.zeros(classes, dtype=torch.float64).index_add_(0, labels, means) / sizes
    pixel_variance = float(squares.mean() - means.mean().square())
    between = float((sizes * (class_means - means.mean()).square()).sum())
    within = float((means - class_means[labels]).square().sum())
    f = _ratio(between / (classes - 1), within / (count - classes))
    return ChannelAnova(
        papers=_papers(class_means, pixel_variance, count),
        f=f,
        p=_tail(f, classes - 1, count - classes),
        eta_squared=between / (between + within) if between + within > 0 else 0.0,
    )


def _papers(class_means: torch.Tensor, pixel_variance: float, count: int) -> float:
    classes = len(class_means)
    spread = float(class_means.var(correction=0))
    between = spread * (classes - 1) * (count / classes - 1)
    rest = pixel_variance * (count - 1) - between
    return _ratio(between / (classes - 1), rest / (count - classes))


def _ratio(above: float, below: float) -> float:
    if below > 0:
        return above / below
    return float("inf") if above > 0 else 0.0


def _tail(f: float, between: int, within: int) -> float:
    """The chance of an F this large if the classes did not differ; 0 below about 1e-300."""
    from scipy.special import fdtrc

    return float(fdtrc(between, within, f))
