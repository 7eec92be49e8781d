"""What is going wrong with a cell, in plain words, and what to try."""

from __future__ import annotations

import math
from dataclasses import dataclass

# A discriminator whose mean loss is below this share of its loss at a draw tells real from fake
# almost without error, so the generator's gradient carries next to nothing. A critic has no draw,
# and the relativistic loss includes its penalty.
SATURATED_SHARE = 0.03
LOSS_AT_A_DRAW = {"minimax": math.log(2), "heuristic": math.log(2), "least_squares": 0.25}
# Fewer covered classes than this share of the real ones is mode collapse, and so are copies.
COLLAPSED_COVERAGE = 0.5
DUPLICATE_SHARE = 0.5
# A generator that has hardly trained makes one kind of blob; that is a start, not a collapse.
GRACE_BATCHES = 1500


@dataclass(frozen=True)
class Alarm:
    """One finding about one cell in one round."""

    kind: str
    message: str
    advice: str


def find_alarms(
    *,
    batches: int,
    diverged: bool,
    discriminator_loss: float,
    objective: str,
    classes: int | None,
    real_classes: int | None,
    duplicates: float | None,
) -> list[Alarm]:
    """Everything worth telling about a cell that has trained so many batches."""
    found = []
    if diverged:
        found.append(
            Alarm(
                "diverged",
                "weights became NaN or infinite; the cell fell back to the last good round",
                "lower training.learning_rate, or try network.spectral_norm=true",
            )
        )
    if discriminator_loss < SATURATED_SHARE * LOSS_AT_A_DRAW.get(objective, -math.inf):
        found.append(
            Alarm(
                "saturated",
                f"the discriminator hardly errs (loss {discriminator_loss:.4f}), "
                "so the generator learns next to nothing",
                "raise training.skip_n_disc_steps, or try training.objective=relativistic",
            )
        )
    if batches < GRACE_BATCHES:
        return found
    if classes is not None and real_classes and classes < COLLAPSED_COVERAGE * real_classes:
        found.append(
            Alarm(
                "collapsed",
                f"only {classes} of {real_classes} classes are generated",
                "use a larger grid or neighbourhood, or try network.spectral_norm=true",
            )
        )
    if duplicates is not None and duplicates > DUPLICATE_SHARE:
        found.append(
            Alarm(
                "duplicates",
                f"{duplicates:.0%} of the samples have a near-duplicate",
                "lower training.learning_rate, or use a larger grid",
            )
        )
    return found
