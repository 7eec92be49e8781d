"""A run as one row of `remuda runs`."""

from __future__ import annotations

from remuda.config import Config
from remuda.runs.records import RunResult
from remuda.runs.store import RunFolder

TITLES = ("run", "state", "method", "grid", "data", "rounds", "score")


def summarise(run: RunFolder) -> tuple[str, ...]:
    """One column per title; a damaged run is listed as damaged, not left out."""
    try:
        return _row(run)
    except Exception as error:  # whatever is in one folder, the others are listed
        reason = " ".join(str(error).split()) or type(error).__name__
        return str(run.path), "damaged", "", "", "", "", reason


def _row(run: RunFolder) -> tuple[str, ...]:
    config, result = run.config(), run.result()
    last, live = 0, None
    for event in run.iter_events():
        if event["event"] == "population":
            last, live = max(last, event["round"]), event.get("score")
    rows, columns = config.grid.shape
    return (
        str(run.path),
        "finished" if result is not None else "running" if run.is_locked() else "interrupted",
        config.method.name,
        f"{rows}x{columns}",
        config.data.source,
        f"{last}/{config.rounds}",
        _score(config, result, live),
    )


def _score(config: Config, result: RunResult | None, live: float | None) -> str:
    metric = config.score.metric
    if result is not None and result.scores is not None:
        values = result.scores.values
        if "modes_covered" in values:
            return f"modes {values['modes_covered']}/{result.scores.modes}"
        value = values.get(metric)
    else:
        metric, value = f"live {metric}", live
    return "" if value is None else f"{metric} {value:.2f}"
