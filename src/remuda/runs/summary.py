"""A run as one row of `remuda runs`."""

from __future__ import annotations

from remuda.errors import RemudaError
from remuda.runs.records import RunResult
from remuda.runs.store import RunFolder

TITLES = ("run", "state", "method", "grid", "data", "rounds", "score")


def summarise(run: RunFolder) -> tuple[str, ...]:
    """One column per title; a damaged run is listed as damaged, not left out."""
    try:
        config = run.config()
        result = run.result()
        rounds = [event["round"] for event in run.events() if event.get("event") == "population"]
        last = max(rounds, default=0)
        state = (
            "finished" if result is not None else "running" if run.is_locked() else "interrupted"
        )
        score = _score(result, run)
    except (RemudaError, OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        return str(run.path), "damaged", "", "", "", "", " ".join(str(error).split())
    rows, columns = config.grid.shape
    return (
        str(run.path),
        state,
        config.method.name,
        f"{rows}x{columns}",
        config.data.source,
        f"{last}/{config.rounds}",
        score,
    )


def _score(result: RunResult | None, run: RunFolder) -> str:
    metric = run.config().score.metric
    if result is not None and result.scores is not None:
        values = result.scores.values
        if "modes_covered" in values:
            return f"modes {values['modes_covered']}/{result.scores.modes}"
        value = values.get(metric)
    else:
        found = [event for event in run.events() if event.get("event") == "population"]
        value = found[-1].get("score") if found else None
        metric = f"live {metric}"
    return "" if value is None else f"{metric} {value:.2f}"
