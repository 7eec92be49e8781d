"""A comparison in words and tables: for the terminal, and the same as Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.compare.measure import COSTS
from remuda.compare.plan import settings_that_differ
from remuda.compare.result import ALPHA, ArmResult, PairResult, Result, Score
from remuda.compare.statistics.curves import CostSummary
from remuda.compare.statistics.power import detectable
from remuda.compare.statistics.summaries import Summary
from remuda.files import plain_markdown

COST_TITLES = {
    "images": "images",
    "updates": "updates",
    "cpu_seconds": "CPU seconds",
    "wall_seconds": "wall seconds",
}


@dataclass(frozen=True)
class Table:
    """Rows of text under a title; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        lines = [
            f"## {plain_markdown(self.title)}",
            "",
            _row(self.columns),
            _row([":---", *["---:"] * (len(self.columns) - 1)]),
            *map(_row, self.rows),
        ]
        return "\n".join([*lines, *(["", plain_markdown(self.note)] if self.note else [])])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(plain_markdown, cells)) + " |"


def tables(result: Result) -> list[Table]:
    """All that a reader needs: the deciding score, pairs, the other scores, costs, settings."""
    if not result.arms:
        return []
    first, *others = result.scores
    found = [_seeds(result, first), _pair_table(result, [first])]
    if others:
        found += [_medians(result, others), _pair_table(result, others)]
    if result.plan.collapsed is not None:
        found += [_collapse_table(result), _collapse_pairs(result)]
    found.append(_cost_table(result))
    if result.plan.target is not None:
        found.append(_target_table(result))
    found.append(_settings_table(result))
    return [table for table in found if table.rows]


def verdicts(result: Result) -> list[str]:
    """What the deciding score says about each pair, in a sentence."""
    return [_verdict(result, pair) for pair in result.deciding]


def markdown(result: Result, heading: str, facts: Sequence[str]) -> str:
    """The whole comparison as a page."""
    parts = [f"# {plain_markdown(heading)}", *(f"- {plain_markdown(fact)}" for fact in facts), ""]
    parts += [f"**{plain_markdown(verdict)}**\n" for verdict in verdicts(result)]
    parts += [f"{plain_markdown(line)}\n" for line in added_seeds(result)]
    if result.warnings:
        cautions = (f"- {plain_markdown(warning)}" for warning in result.warnings)
        parts += ["Cautions:\n", *cautions, ""]
    return (
        "\n".join(parts) + "\n" + "\n\n".join(table.markdown() for table in tables(result)) + "\n"
    )


def runs_csv(result: Result, states: Sequence[Mapping[str, Any]]) -> str:
    """One line per run, also of those that failed."""
    names = [score.name for score in result.scores]
    measured = {(run.arm, run.seed): run for run in result.measured}
    titles = ["arm", "seed", "state", "added", *names, *COSTS, "path"]
    return _csv(
        titles,
        (
            [
                *(state["arm"], state["seed"], state["state"], state["added"]),
                *(_plain(run.values.get(name)) if run else "" for name in names),
                *(_plain(run.costs[cost]) if run else "" for cost in COSTS),
                state["path"],
            ]
            for state in states
            for run in [measured.get((state["arm"], state["seed"]))]
        ),
    )


def pairs_csv(result: Result) -> str:
    """One line per pair and score."""
    titles = "a b score paired runs_a runs_b difference low high p p_holm probability_a_better next"
    return _csv(
        titles.split(),
        (
            [
                *(pair.a, pair.b, pair.score, pair.paired, *pair.runs),
                *map(_plain, (pair.difference.estimate, pair.difference.low, pair.difference.high)),
                *map(_plain, (pair.test.p, pair.adjusted, pair.probability)),
                _plain(pair.next_seed.probability),
            ]
            for pair in result.pairs
        ),
    )


# ---------------------------------------------------------------------------- tables


def _seeds(result: Result, score: Score) -> Table:
    rows = [
        (
            arm.name,
            str(len(arm.seeds)),
            number(arm.scores[score.name].median),
            _range(arm.scores[score.name]),
            "  ".join(number(value) for value in arm.values[score.name]),
        )
        for arm in result.arms
    ]
    columns = ("arm", "runs", "median", "quartiles", "every seed")
    return Table(f"{score.label}: decides", columns, tuple(rows))


def _medians(result: Result, scores: Sequence[Score]) -> Table:
    rows = [
        (
            score.label,
            *(
                f"{number(arm.scores[score.name].median)} ({_range(arm.scores[score.name])})"
                for arm in result.arms
            ),
        )
        for score in scores
    ]
    columns = ("score", *(arm.name for arm in result.arms))
    return Table("The other scores: median (quartiles)", columns, tuple(rows))


def _pair_table(result: Result, scores: Sequence[Score]) -> Table:
    shown = {score.name: score for score in scores}
    rows = [
        (
            f"{pair.a} − {pair.b}",
            shown[pair.score].title,
            _interval(pair),
            probability_text(pair.test.p),
            f"{probability_text(pair.adjusted)}{f' {pair.stars}' if pair.stars else ''}",
            f"{pair.probability:.2f} {pair.effect}",
            f"{pair.next_seed.probability:.2f} "
            f"({pair.next_seed.low:.2f}–{pair.next_seed.high:.2f})",
        )
        for pair in result.pairs
        if pair.score in shown
    ]
    columns = (
        *("pair A − B", "score", "difference [95 %]", "p", "p (Holm)"),
        *("A better (A12)", "A wins next seed"),
    )
    tests = dict.fromkeys(pair.test.name for pair in result.pairs if pair.score in shown)
    note = f"Tests: {'; '.join(tests)}. Holm over {len(result.pairs)} pairs and scores."
    which = scores[0].title if len(scores) == 1 else "the other scores"
    return Table(f"Pairs of arms: {which}", columns, tuple(rows), note)


def _collapse_table(result: Result) -> Table:
    rows = [
        (arm.name, f"{part.count} of {part.of}", f"{part.low:.2f}–{part.high:.2f}")
        for arm in result.arms
        for part in [arm.collapsed]
        if part is not None
    ]
    columns = ("arm", "collapsed", "share [95 %]")
    note = "Also runs whose score is not finite. Intervals: Clopper and Pearson's."
    return Table(f"Collapsed runs: {_criterion(result)}", columns, tuple(rows), note)


def _collapse_pairs(result: Result) -> Table:
    rows = [
        (f"{pair.a}, {pair.b}", probability_text(pair.test.p), probability_text(pair.adjusted))
        for pair in result.collapses
    ]
    tests = dict.fromkeys(pair.test.name for pair in result.collapses)
    note = f"Tests: {'; '.join(tests)}. Holm over these {len(rows)} pairs."
    title = f"Pairs of arms: share of collapsed runs ({_criterion(result)})"
    return Table(title, ("pair", "p", "p (Holm)"), tuple(rows), note)


def _criterion(result: Result) -> str:
    """As a reader writes it: TVD > 0.5."""
    text = result.plan.collapsed or ""
    title = {score.name: score.title for score in result.scores}
    name, sign, limit = re.split("([<>])", text)
    return f"{title[name]} {sign} {limit}"


def _cost_table(result: Result) -> Table:
    rows = [
        (arm.name, *(number(arm.costs[cost].median, whole=True) for cost in COSTS))
        for arm in result.arms
    ]
    note = "Images are the real ones of all batches, an update is a batch; both summed over cells."
    columns = ("arm", *(COST_TITLES[cost] for cost in COSTS))
    return Table("Cost of a run: median", columns, tuple(rows), note)


def _target_table(result: Result) -> Table:
    target = number(result.plan.target)
    rows = [
        (arm.name, _reached(arm), *(_cost(arm.reached[cost]) for cost in COSTS))
        for arm in result.arms
        if arm.reached is not None
    ]
    columns = ("arm", "reached by", *(COST_TITLES[cost] for cost in COSTS))
    title = f"Cost of reaching a {result.live.title} of {target}: median"
    note = "Runs that never reach it count as more expensive than all others."
    return Table(title, columns, tuple(rows), note)


def _settings_table(result: Result) -> Table:
    differ = settings_that_differ(result.plan.arms)
    names = [arm.name for arm in result.plan.arms]
    rows = [
        (key, *("–" if values[name] is None else str(values[name]) for name in names))
        for key, values in differ.items()
    ]
    return Table("Settings in which the arms differ", ("setting", *names), tuple(rows))


# ---------------------------------------------------------------------------- words


def _verdict(result: Result, pair: PairResult) -> str:
    score = next(score for score in result.scores if score.name == pair.score)
    chance = f"p {probability_text(pair.test.p)}, after Holm {probability_text(pair.adjusted)}"
    if pair.winner is not None:
        loser = pair.b if pair.winner == pair.a else pair.a
        better = pair.probability if pair.winner == pair.a else 1 - pair.probability
        return (
            f"{pair.winner} beats {loser} in {score.title}{_gain(pair)} ({chance}); a run of it is "
            f"better with probability {better:.2f}"
        )
    if not pair.is_enough:
        return (
            f"{pair.a} and {pair.b}: {seeds_text(min(pair.runs))} too few to say; p cannot fall "
            f"below {probability_text(pair.test.smallest)}"
        )
    # What the strictest step of Holm's correction leaves to a single test.
    alpha = ALPHA / len(result.pairs)
    least = detectable(min(pair.runs), paired=pair.paired, alpha=alpha)
    seen = "" if least is None else f"; {least:.1f} deviations would be seen 8 times in 10"
    return f"no difference in {score.title} between {pair.a} and {pair.b} is shown ({chance}{seen})"


def _gain(pair: PairResult) -> str:
    """By how much the winner is better on average, with its interval; above 0 is better."""
    found = pair.difference
    if found.estimate is None:
        return ""
    sign = 1 if (pair.winner == pair.a) == pair.higher_is_better else -1
    by = sign * found.estimate
    if by <= 0:
        return f" in most runs, though its mean is worse by {number(-by)}"
    if found.low is None or found.high is None:
        return f" by {number(by)} on average"
    low, high = sorted((sign * found.low, sign * found.high))
    return f" by {number(by)} on average [{number(low)}, {number(high)}]"


def seeds_text(count: int) -> str:
    return f"{count} seed is" if count == 1 else f"{count} seeds are"


def added_seeds(result: Result) -> list[str]:
    """When seeds were added later, and what they changed."""
    lines = [
        f"seeds {', '.join(map(str, more.seeds))} were added on {more.time}, after the plan of "
        f"{result.plan.written}"
        for more in result.plan.additions
    ]
    for before in result.planned_only:
        after = next(pair for pair in result.deciding if (pair.a, pair.b) == (before.a, before.b))
        lines.append(
            f"{before.a} and {before.b}: difference {_interval(before)}, p "
            f"{probability_text(before.test.p)} with the planned seeds; {_interval(after)}, p "
            f"{probability_text(after.test.p)} with all"
        )
    return lines


def _interval(pair: PairResult) -> str:
    found = pair.difference
    if found.estimate is None:
        return found.how
    bounds = "" if found.low is None else f" [{signed(found.low)}, {signed(found.high)}]"
    return f"{signed(found.estimate)}{bounds}"


def _range(summary: Summary) -> str:
    return f"{number(summary.q1)}–{number(summary.q3)}"


def _reached(arm: ArmResult) -> str:
    assert arm.reached is not None
    one = arm.reached["images"]
    return f"{one.reached} of {one.n}"


def _cost(summary: CostSummary) -> str:
    return "never" if summary.median is None else number(summary.median, whole=True)


def number(value: float | None, *, whole: bool = False) -> str:
    """Four digits that count, and no powers of ten in between."""
    if value is None or not math.isfinite(value):
        return "–"
    value += 0.0  # no negative zero
    if value == round(value) and abs(value) < 1e6:
        return f"{value:,.0f}"
    if whole and abs(value) >= 100:
        return f"{value:,.0f}"
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value) or 1)))}f}"
    return f"{value:.3g}"


def signed(value: float | None) -> str:
    return number(value) if value is None or value <= 0 else f"+{number(value)}"


def probability_text(p: float | None) -> str:
    if p is None:
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _plain(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else repr(float(value))


def _csv(titles: Sequence[str], rows: Any) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(titles)
    writer.writerows(rows)
    return text.getvalue()
