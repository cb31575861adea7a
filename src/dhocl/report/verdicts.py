"""Decide claims.

| decision     | a statement                                        | a claim                               |
|--------------|----------------------------------------------------|---------------------------------------|
| confirmed    | every comparison on every data set supports it     | every statement is confirmed          |
| refuted      | at least one at scale full or paper contradicts it | at least one statement is refuted     |
| not observed | only comparisons at smaller scales contradict it   | a statement is, and none is refuted   |
| not decided  | otherwise                                          | otherwise                             |

A statement is decided on the data sets that have runs of both rows of any of its comparisons.

That no row dominates is confirmed if for every row another is distinctly better in some metric on some data set. It is
refuted if one row is distinctly better than every other, in all metrics on all data sets; not observed, if any of these
are at a smaller scale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from dhocl.experiment.recipes import Scale
from dhocl.report.claims import Claim, NoneBest, Part
from dhocl.report.evidence import Outcome, Summaries, Verdict, outcomes

LONG = (Scale.full, Scale.paper)  # scales whose streams are long enough to refute a claim


class Decision(StrEnum):
    confirmed = "confirmed"
    refuted = "refuted"
    unobserved = "not observed"
    undecided = "not decided"


class PartResult(NamedTuple):
    part: Part | NoneBest
    outcomes: list[Outcome]
    decision: Decision
    steps: int  # of the longest stream that was compared

    @property
    def words(self) -> str:
        return in_words(self.decision, self.steps)


class ClaimResult(NamedTuple):
    claim: Claim
    parts: list[PartResult]
    decision: Decision

    @property
    def words(self) -> str:
        return in_words(self.decision, max(part.steps for part in self.parts))

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome for part in self.parts for outcome in part.outcomes]

    @property
    def recipes(self) -> list[str]:
        """Those whose runs were compared, the one with the most comparisons first."""
        counted = Counter(outcome.recipe for outcome in self.outcomes if outcome.recipe)
        return [name for name, _ in counted.most_common()]


def judge(claim: Claim, summaries: Summaries) -> ClaimResult:
    parts = []
    for part in claim.parts:
        found = outcomes(part.comparisons, summaries)
        decision = _none_best(found) if isinstance(part, NoneBest) else _all_support(found)
        parts.append(PartResult(part, found, decision, max((_steps(o, summaries) for o in found), default=0)))
    decisions = {part.decision for part in parts}
    for against in (Decision.refuted, Decision.unobserved):
        if against in decisions:
            return ClaimResult(claim, parts, against)
    return ClaimResult(claim, parts, Decision.confirmed if decisions == {Decision.confirmed} else Decision.undecided)


def in_words(decision: Decision, steps: int) -> str:
    """
    >>> in_words(Decision.unobserved, 1563), in_words(Decision.refuted, 1563)
    ('not observed in a stream of 1,563 steps', 'refuted')
    """
    return f"{decision} in a stream of {steps:,} steps" if decision is Decision.unobserved else decision.value


def _steps(outcome: Outcome, summaries: Summaries) -> int:
    """Steps of the longest stream that was compared; 0 if there are no runs."""
    arms = [arm for option in outcome.comparison.options for quantity in option for arm in quantity.arms]
    runs = [arm.runs(summaries, outcome.dataset) for arm in arms if arm.recipe == outcome.recipe]
    return max((run["steps"] for own in runs for run in own.values()), default=0)


def _all_support(found: Sequence[Outcome]) -> Decision:
    verdicts = {outcome.verdict for outcome in found}
    if Verdict.contradicts in verdicts:
        long = any(outcome.scale in LONG for outcome in found if outcome.verdict is Verdict.contradicts)
        return Decision.refuted if long else Decision.unobserved
    return Decision.confirmed if verdicts == {Verdict.supports} else Decision.undecided


def _none_best(found: Sequence[Outcome]) -> Decision:
    rows = list(by_row(found).values())
    verdicts = [{outcome.verdict for outcome in own} for own in rows]
    if verdicts and all(Verdict.contradicts in own for own in verdicts):
        return Decision.confirmed
    if {Verdict.supports} not in verdicts:
        return Decision.undecided
    best = rows[verdicts.index({Verdict.supports})]
    return Decision.refuted if all(outcome.scale in LONG for outcome in best) else Decision.unobserved


def by_row(found: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    rows: dict[str, list[Outcome]] = {}
    for outcome in found:
        rows.setdefault(outcome.comparison.first, []).append(outcome)
    return rows


def worst(found: Sequence[Outcome]) -> Outcome | None:
    """The comparison that speaks most clearly against the row; else the one that speaks least clearly for it."""
    against = [outcome for outcome in found if outcome.verdict is Verdict.contradicts]
    if against:
        return max(against, key=lambda outcome: outcome.clarity)
    return min((o for o in found if o.difference), key=lambda outcome: outcome.clarity, default=None)


def decisive(part: PartResult) -> Outcome | None:
    """The comparison to show for a statement: the clearest contradiction, or else the least clear comparison.

    That no row dominates is shown by the row whose worst comparison is the least clear.
    """
    if not isinstance(part.part, NoneBest):
        return worst(part.outcomes)
    rows = [outcome for own in by_row(part.outcomes).values() if (outcome := worst(own))]
    dominant = [outcome for outcome in rows if outcome.verdict is Verdict.supports]
    return min(dominant or rows, key=lambda outcome: outcome.clarity, default=None)
