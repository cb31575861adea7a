"""CSV files that lead from the numbers of the pages to the runs that they are from."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from dhocl.experiment.sweep import portable
from dhocl.report.claim_text import spoken
from dhocl.report.command import command
from dhocl.report.reading import NUMBERS, Run
from dhocl.report.section import Section
from dhocl.report.tables import lookup
from dhocl.report.verdicts import ClaimResult

# All that a claim compares, and the costs.
METRICS = (
    *(number.name for number in NUMBERS),
    "open.AAUC",
    "level_accuracy.0",
    "structure.-1",
    "cost_vs_er",
    "state_mb",
)
RUN_COLUMNS = ("run", "recipe", "panel", "row", "seed", "command", *METRICS)
CLAIM_COLUMNS = (
    *("claim", "statement", "metric", "first", "second", "data set", "recipe", "scale", "verdict", "why not decided"),
    *("difference", "half of the 95 % interval", "pairs"),
)


def runs_csv(sections: Iterable[Section]) -> str:
    """A line per planned run: where it belongs, the command that repeats it, and its metrics."""
    lines: list[Sequence[object]] = [RUN_COLUMNS]
    for part in sections:
        finished = {run.name: run for rows in part.runs.values() for runs in rows.values() for run in runs}
        for entry in part.entries:
            place = [entry.run, part.name, entry.panel, entry.row, entry.seed]
            lines.append([*place, *_result(finished.get(entry.run))])
    return _csv(lines)


def _result(run: Run | None) -> list[object]:
    """Command and metrics; empty if the run is not finished."""
    if run is None:
        return [""] * (1 + len(METRICS))
    return [command(portable(run.config)), *(lookup(run.summary, name) for name in METRICS)]


def claims_csv(results: Sequence[ClaimResult]) -> str:
    """A line per comparison and data set."""
    lines: list[Sequence[object]] = [CLAIM_COLUMNS]
    for result in results:
        for part in result.parts:
            for outcome in part.outcomes:
                comparison, gap = outcome.comparison, outcome.difference
                names = [comparison.quantity.title, comparison.first, comparison.second]
                found = [outcome.dataset, outcome.recipe, outcome.scale or ""]
                found += [spoken(part.part)[outcome.verdict], outcome.problem]
                values = ["", "", 0] if gap is None else [gap.mean, "" if gap.half is None else gap.half, gap.pairs]
                lines.append([result.claim.name, part.part.sentence, *names, *found, *values])
    return _csv(lines)


def _csv(lines: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
