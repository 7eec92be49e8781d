"""Signs that a cell is in trouble, in plain words, with advice."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.config import OBJECTIVES

# A discriminator whose mean loss is below this fraction of its loss when guessing separates real
# from fake almost perfectly, so the generator gets next to no gradient. Critics do not guess, and
# the relativistic loss includes its penalty, so for neither is there such a loss.
SATURATED_SHARE = 0.03
# Covering less than this fraction of the real classes is mode collapse; so are near-duplicates.
COLLAPSED_COVERAGE = 0.5
DUPLICATE_SHARE = 0.5
# A generator that has hardly trained draws the same blob every time; that is not a collapse.
GRACE_BATCHES = 1500


@dataclass(frozen=True)
class Alarm:
    """One problem of one cell in one round."""

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
    """Every problem of a cell that has trained for `batches` batches."""
    found = []
    if diverged:
        found.append(
            Alarm(
                "diverged",
                "weights became NaN or infinite; the cell fell back to the last good round",
                "lower training.learning_rate, or try network.spectral_norm=true",
            )
        )
    guessing = OBJECTIVES[objective].loss_at_a_draw
    if guessing is not None and discriminator_loss < SATURATED_SHARE * guessing:
        found.append(
            Alarm(
                "saturated",
                f"the discriminator is hardly ever wrong (loss {discriminator_loss:.4f}), "
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
