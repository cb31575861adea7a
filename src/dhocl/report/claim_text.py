"""The result of a claim in sentences, generated from its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dhocl.report.claims import NoneBest, Part
from dhocl.report.evidence import NO_RUNS, Outcome, Verdict
from dhocl.report.reading import written
from dhocl.report.verdicts import ClaimResult, Decision, PartResult, by_row, decisive, worst

NAMED = 5  # contradictions that a paragraph names; the others are in claims.csv


def number(outcome: Outcome) -> str:
    """The difference with its interval, one more digit than the metric, and the number of seeds."""
    gap, digits = outcome.difference, outcome.comparison.quantity.digits + 1
    if gap is None:
        return outcome.problem
    half = f" ± {written(gap.half, digits)}" if gap.half is not None else ""
    return f"{gap.mean:+,.{digits}f}{half} ({gap.pairs} seed{'s' if gap.pairs > 1 else ''})"


def described(outcome: Outcome) -> str:
    place = f" on {outcome.dataset}" if outcome.dataset else ""
    return f"{outcome.comparison.quantity.title}, {outcome.comparison.name}{place}: {number(outcome)}"


def key_number(result: ClaimResult) -> str:
    """One number for a claim, of the first statement that decides it and has runs."""
    deciding = [decisive(part) for part in result.parts if part.decision is result.decision]
    return next((described(outcome) for outcome in deciding if outcome), NO_RUNS)


def spoken(part: Part | NoneBest) -> dict[Verdict, str]:
    """Names of verdicts. A comparison of two rows is no evidence by itself that none dominates."""
    if isinstance(part, Part):
        return {verdict: verdict.value for verdict in Verdict}
    return dict(zip(Verdict, ("first is better", "second is better", Verdict.undecided.value), strict=True))


def tally(result: ClaimResult) -> str:
    """Numbers of comparisons that support, contradict, and are open; or of rows that are beaten by another."""
    if all(isinstance(part.part, Part) for part in result.parts):
        verdicts = Counter(outcome.verdict for outcome in result.outcomes)
        return " / ".join(str(verdicts[verdict]) for verdict in Verdict)
    rows = [by_row(part.outcomes).values() for part in result.parts]
    return ", ".join(f"{sum(map(_beaten, found))} of {len(found)}" for found in rows) + " rows beaten"


def _beaten(own: Sequence[Outcome]) -> bool:
    return any(outcome.verdict is Verdict.contradicts for outcome in own)


def counts(found: Sequence[Outcome]) -> str:
    """
    >>> counts([])
    '0 support, 0 contradict, 0 not decided'
    """
    verdicts = Counter(outcome.verdict for outcome in found)
    supports, contradicts, undecided = (verdicts[verdict] for verdict in Verdict)
    return f"{supports} support, {contradicts} contradict, {undecided} not decided"


def paragraph(part: PartResult) -> str:
    """What a statement says, how it was decided, where it is contradicted and what is missing."""
    sentences = [part.part.sentence, f"**{part.words.capitalize()}.**"]
    if not any(outcome.difference for outcome in part.outcomes):
        return " ".join([*sentences, "There are no runs to compare."])
    sentences.append(f"Compared on {sources(part.outcomes)}.")
    sentences += _rows(part) if isinstance(part.part, NoneBest) else _comparisons(part.outcomes)
    return " ".join(sentences)


def sources(found: Sequence[Outcome]) -> str:
    """Where differences are from: data sets, recipes and scales."""
    datasets: dict[str, list[str]] = {}
    for outcome in found:
        if outcome.scale:
            source = f"recipe `{outcome.recipe}`, scale `{outcome.scale}`"
            datasets.setdefault(source, []).append(outcome.dataset)
    return "; ".join(f"{', '.join(dict.fromkeys(names))} ({source})" for source, names in datasets.items())


def _comparisons(found: Sequence[Outcome]) -> list[str]:
    sentences = [f"Of {len(found)} comparisons: {counts(found)}." if len(found) > 1 else f"{described(found[0])}."]
    against = [outcome for outcome in found if outcome.verdict is Verdict.contradicts]
    if against and len(found) > 1:
        sentences.append(_listed("Contradicting", against))
    undecided = Counter(outcome.problem for outcome in found if outcome.problem)
    if undecided:
        missing = ", ".join(f"{reason} ({count})" for reason, count in sorted(undecided.items()))
        sentences.append(f"Not decided because of: {missing}.")
    if not against and len(found) > 1 and (least := worst(found)):
        sentences.append(f"Least clear: {described(least)}.")
    return sentences


def _listed(title: str, found: Sequence[Outcome]) -> str:
    clearest = sorted(found, key=lambda outcome: -outcome.clarity)[:NAMED]
    rest = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"{title}: {'; '.join(map(described, clearest))}{rest}."


def _rows(part: PartResult) -> list[str]:
    """For each row its worst comparison."""
    rows = by_row(part.outcomes)
    beaten = {row: outcome for row, own in rows.items() if (outcome := worst(own))}
    below = [outcome for outcome in beaten.values() if outcome.verdict is Verdict.contradicts]
    sentences = [f"For {len(below)} of {len(rows)} rows another is distinctly better in some metric on some data set."]
    if below:
        sentences.append(f"The clearest case of each: {'; '.join(map(described, below))}.")
    if part.decision in (Decision.refuted, Decision.unobserved):
        best = [row for row, own in rows.items() if {outcome.verdict for outcome in own} == {Verdict.supports}]
        sentences.append(f"Distinctly better than all others everywhere: {', '.join(best)}.")
    elif left := [row for row in rows if row not in {outcome.comparison.first for outcome in below}]:
        sentences.append(f"Not beaten, and not distinctly best everywhere: {', '.join(left)}.")
    return sentences
