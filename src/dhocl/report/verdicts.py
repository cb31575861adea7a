"""Decide claims.

| decision    | a statement                                    | a claim                           |
|-------------|------------------------------------------------|-----------------------------------|
| confirmed   | every comparison on every data set supports it | every statement is confirmed      |
| refuted     | at least one contradicts it                    | at least one statement is refuted |
| not decided | otherwise                                      | otherwise                         |

A statement is decided on the data sets that have runs of both rows of any of its comparisons.

That no row dominates is confirmed if for every row another is distinctly better in some metric on some data set. It is
refuted if one row is distinctly better than every other, in all metrics on all data sets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from dhocl.report.claims import Claim, NoneBest, Part
from dhocl.report.evidence import Outcome, Summaries, Verdict, outcomes


class Decision(StrEnum):
    confirmed = "confirmed"
    refuted = "refuted"
    undecided = "not decided"


class PartResult(NamedTuple):
    part: Part | NoneBest
    outcomes: list[Outcome]
    decision: Decision


class ClaimResult(NamedTuple):
    claim: Claim
    parts: list[PartResult]
    decision: Decision

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
        parts.append(PartResult(part, found, decision))
    decisions = {part.decision for part in parts}
    if Decision.refuted in decisions:
        return ClaimResult(claim, parts, Decision.refuted)
    return ClaimResult(claim, parts, Decision.confirmed if decisions == {Decision.confirmed} else Decision.undecided)


def _all_support(found: Sequence[Outcome]) -> Decision:
    verdicts = {outcome.verdict for outcome in found}
    if Verdict.contradicts in verdicts:
        return Decision.refuted
    return Decision.confirmed if verdicts == {Verdict.supports} else Decision.undecided


def _none_best(found: Sequence[Outcome]) -> Decision:
    verdicts = [{outcome.verdict for outcome in own} for own in by_row(found).values()]
    if verdicts and all(Verdict.contradicts in own for own in verdicts):
        return Decision.confirmed
    return Decision.refuted if {Verdict.supports} in verdicts else Decision.undecided


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
