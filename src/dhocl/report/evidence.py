"""Comparisons of rows on a data set, by paired differences over the seeds."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from dhocl.report.paired import Difference, StreamKey, by_seed, difference
from dhocl.report.tables import KNOWN, lookup

Rows = Mapping[str, Mapping[StreamKey, Mapping[str, Any]]]  # row -> summaries of its finished runs
Summaries = Mapping[str, Mapping[str, Rows]]  # recipe -> panel -> rows


class Arm(NamedTuple):
    """A row of a recipe, on every data set. A panel is a data set, or with a condition `cifar100, noise 40 %`."""

    recipe: str
    row: str
    condition: str = ""

    def datasets(self, summaries: Summaries) -> list[str]:
        panels = [panel.partition(", ") for panel in summaries.get(self.recipe, {})]
        return [dataset for dataset, _, condition in panels if condition == self.condition]

    def runs(self, summaries: Summaries, dataset: str) -> Mapping[StreamKey, Mapping[str, Any]]:
        panel = f"{dataset}, {self.condition}" if self.condition else dataset
        return summaries.get(self.recipe, {}).get(panel, {}).get(self.row, {})


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

    `options` are the same question asked to different recipes. The one with the most common seeds is used.
    """

    first: str
    second: str
    options: tuple[tuple[Quantity, Quantity], ...]

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


class Outcome(NamedTuple):
    comparison: Comparison
    dataset: str  # empty if no recipe of the comparison was run
    recipe: str  # where the difference is from; empty if there is none
    difference: Difference | None  # first - second
    problem: str  # why it is not decided; empty if it is

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


def outcomes(comparison: Comparison, summaries: Summaries) -> list[Outcome]:
    """One per data set on which the comparison was planned; without any, one that says so."""
    datasets: dict[str, None] = {}
    for option in comparison.options:
        there = [arm.datasets(summaries) for quantity in option for arm in quantity.arms]
        datasets |= dict.fromkeys(name for name in there[0] if all(name in others for others in there))
    return [_outcome(comparison, dataset, summaries) for dataset in datasets] or [
        Outcome(comparison, "", "", None, "no runs")
    ]


def _outcome(comparison: Comparison, dataset: str, summaries: Summaries) -> Outcome:
    best, recipe, problem = None, "", "no runs"
    for first, second in comparison.options:
        a, b = first.values(summaries, dataset), second.values(summaries, dataset)
        gap = difference(a, b)
        if a and b and gap is None and best is None:
            problem = "no common stream"
        if gap and (best is None or gap.pairs > best.pairs):
            best, recipe, problem = gap, first.arms[0].recipe, _doubt(gap)
    return Outcome(comparison, dataset, recipe, best, problem)


def _doubt(gap: Difference) -> str:
    if gap.half is None:
        return "one seed"
    return "" if gap.distinct else "interval includes 0"
