"""Comparisons of rows on a data set, by paired differences over the seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from dhocl.experiment.recipes import Scale
from dhocl.report.paired import Difference, StreamKey, by_seed, difference
from dhocl.report.tables import KNOWN, lookup

Rows = Mapping[str, Mapping[StreamKey, Mapping[str, Any]]]  # planned row -> summaries of its finished runs


class Results(NamedTuple):
    """The results of a recipe."""

    scale: Scale
    panels: Mapping[str, Rows]


Summaries = Mapping[str, Results]  # by recipe


class Arm(NamedTuple):
    """A row of a recipe, on every data set. A panel is a data set, or with a condition `cifar100, noise 40 %`."""

    recipe: str
    row: str
    condition: str = ""

    def datasets(self, summaries: Summaries) -> list[str]:
        """Those on which the row was planned."""
        panels = summaries[self.recipe].panels if self.recipe in summaries else {}
        there = [panel.partition(", ") for panel, rows in panels.items() if self.row in rows]
        return [dataset for dataset, _, condition in there if condition == self.condition]

    def runs(self, summaries: Summaries, dataset: str) -> Mapping[StreamKey, Mapping[str, Any]]:
        panel = f"{dataset}, {self.condition}" if self.condition else dataset
        panels = summaries[self.recipe].panels if self.recipe in summaries else {}
        return panels.get(panel, {}).get(self.row, {})


class Score(NamedTuple):
    """A metric of an arm."""

    metric: str
    arm: Arm

    @property
    def title(self) -> str:
        return KNOWN[self.metric].name

    @property
    def direction(self) -> int:
        return KNOWN[self.metric].sign

    @property
    def digits(self) -> int:
        return KNOWN[self.metric].digits

    @property
    def arms(self) -> list[Arm]:
        return [self.arm]

    def values(self, summaries: Summaries, dataset: str) -> dict[StreamKey, float]:
        found = {key: lookup(summary, self.metric) for key, summary in self.arm.runs(summaries, dataset).items()}
        return {key: value for key, value in found.items() if value is not None}


class Decline(NamedTuple):
    """How much worse a metric is in one arm than in another, by seed. Relative: in percent of the metric before."""

    metric: str
    before: Arm
    after: Arm
    relative: bool = False

    @property
    def title(self) -> str:
        return "relative decline, %" if self.relative else f"decline of {KNOWN[self.metric].name}"

    @property
    def direction(self) -> int:
        return 1

    @property
    def digits(self) -> int:
        return 1 if self.relative else KNOWN[self.metric].digits

    @property
    def arms(self) -> list[Arm]:
        return [self.before, self.after]

    def values(self, summaries: Summaries, dataset: str) -> dict[StreamKey, float]:
        before, after = (by_seed(Score(self.metric, arm).values(summaries, dataset)) for arm in self.arms)
        sign = KNOWN[self.metric].sign
        worse = {key: sign * (value - after[key]) for key, value in before.items() if key in after}
        if not self.relative:
            return worse
        return {key: 100 * gap / before[key] for key, gap in worse.items() if before[key]}


Quantity = Score | Decline


class Comparison(NamedTuple):
    """The claim that the first is better than the second, or that it declines more.

    `options` are the same question asked to different recipes. The one of the largest scale is used, and of these the
    one with the most common seeds.
    """

    first: str
    second: str
    options: tuple[tuple[Quantity, Quantity], ...]
    datasets: tuple[str, ...] = ()  # empty: all

    @property
    def name(self) -> str:
        return f"{self.first} − {self.second}"

    @property
    def quantity(self) -> Quantity:
        """To name and format differences, which are alike for all options."""
        return self.options[0][0]


class Verdict(StrEnum):
    supports = "supports"
    contradicts = "contradicts"
    undecided = "not decided"


NO_RUNS = "no runs"


class Outcome(NamedTuple):
    comparison: Comparison
    dataset: str = ""  # empty if there is nothing to compare on any data set
    recipe: str = ""  # where the difference is from; empty if there is none
    scale: Scale | None = None  # of the recipe
    difference: Difference | None = None  # first - second
    problem: str = NO_RUNS  # why it is not decided; empty if it is

    @property
    def verdict(self) -> Verdict:
        if self.problem or self.difference is None:
            return Verdict.undecided
        towards = self.comparison.quantity.direction * self.difference.mean
        return Verdict.supports if towards > 0 else Verdict.contradicts

    @property
    def clarity(self) -> float:
        """The mean in halves of its interval: above 1 it is decided."""
        if self.difference is None or self.difference.half is None:
            return 0.0
        return abs(self.difference.mean) / self.difference.half if self.difference.half else float("inf")


def outcomes(comparisons: Iterable[Comparison], summaries: Summaries) -> list[Outcome]:
    """One per comparison and data set on which its rows were planned.

    Data sets without runs of both rows of any comparison are left out. A comparison without a data set has one outcome,
    which says so.
    """
    found = [
        (comparison, [_outcome(comparison, dataset, summaries) for dataset in planned(comparison, summaries)])
        for comparison in comparisons
    ]
    there = {outcome.dataset for _, own in found for outcome in own if outcome.problem != NO_RUNS}
    return [
        outcome
        for comparison, own in found
        for outcome in [outcome for outcome in own if outcome.dataset in there] or [Outcome(comparison)]
    ]


def planned(comparison: Comparison, summaries: Summaries) -> list[str]:
    """The data sets on which any recipe has all rows of the comparison."""
    datasets: dict[str, None] = {}
    for option in comparison.options:
        there = [arm.datasets(summaries) for quantity in option for arm in quantity.arms]
        datasets |= dict.fromkeys(name for name in there[0] if all(name in others for others in there))
    return [name for name in datasets if not comparison.datasets or name in comparison.datasets]


def _outcome(comparison: Comparison, dataset: str, summaries: Summaries) -> Outcome:
    best = Outcome(comparison, dataset)
    for first, second in comparison.options:
        a, b = first.values(summaries, dataset), second.values(summaries, dataset)
        if not a or not b:
            continue
        recipe, gap = first.arms[0].recipe, difference(a, b)
        if gap is None:
            best = best if best.difference else best._replace(problem="no common stream")
            continue
        found = Outcome(comparison, dataset, recipe, summaries[recipe].scale, gap, _doubt(gap))
        best = max(best, found, key=_weight)
    return best


def _weight(outcome: Outcome) -> tuple[int, int]:
    """Larger scales first, then more common seeds."""
    if outcome.scale is None or outcome.difference is None:
        return -1, 0
    return list(Scale).index(outcome.scale), outcome.difference.pairs


def _doubt(gap: Difference) -> str:
    if gap.half is None:
        return "one seed"
    return "" if gap.distinct else "interval includes 0"
