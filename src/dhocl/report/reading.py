"""Read the folder of a run."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Taxonomy
from dhocl.experiment.config import RunConfig
from dhocl.experiment.evaluate import POPULATIONS, Scores, summarise
from dhocl.experiment.record import Record
from dhocl.report.paired import StreamKey

DECODINGS = {"level by level": "", "consistent paths": "path."}  # name -> prefix in a summary

MISSING = "–"


class Number(NamedTuple):
    name: str
    meaning: str
    digits: int = 1
    sign: int = 1  # -1: lower is better


NUMBERS = [  # the five metrics of the paper
    Number("AAUC", "Accuracy averaged over the levels, then over all evaluations, in percent."),
    Number("FAUC", "Accuracy at the finest level, averaged over all evaluations, in percent."),
    Number(
        "MS",
        "Mistake severity: mean height of the lowest common ancestor of the predicted and the true leaf, "
        "averaged over all evaluations. Lower is better; 0 if all predictions are right.",
        digits=2,
        sign=-1,
    ),
    Number("FFAcc", "Accuracy at the finest level at the last evaluation, in percent."),
    Number("FAAcc", "Accuracy averaged over the levels at the last evaluation, in percent."),
]
HIERARCHICAL = [  # other common metrics, averaged over all evaluations
    Number("h_precision", "Hierarchical precision: percentage of the predicted classes of all levels that are right."),
    Number("h_recall", "Hierarchical recall: percentage of the true classes of all levels that are predicted."),
    Number("h_f1", "Harmonic mean of hierarchical precision and recall, in percent."),
    Number("lca_distance", "MS divided by the number of levels. Lower is better.", digits=2, sign=-1),
]
OPEN_AAUC = Number("open.AAUC", f"AAUC of the population “open”. {POPULATIONS['open']}")


def entry(name: str, prefix: str) -> str:
    """The key of a metric in a summary, for a prefix of DECODINGS.

    >>> entry("AAUC", "path."), entry("open.AAUC", "path."), entry("open.AAUC", "")
    ('path.AAUC', 'open.path.AAUC', 'open.AAUC')
    """
    *population, own = name.split(".")
    return ".".join([*population, prefix + own])


class Run(NamedTuple):
    name: str  # of the folder
    config: RunConfig
    stream: str  # its hash
    ranks: list[str]  # name of each level, coarsest first
    curve: list[Scores]
    taxonomy: Taxonomy
    summary: dict[str, Any]  # so far, if the run is not finished; empty before the first evaluation
    finished: bool

    @property
    def key(self) -> StreamKey:
        """Runs with the same key learned from the same stream."""
        return self.config.seed, self.stream

    @property
    def samples(self) -> int:
        """Number of samples before the last evaluation."""
        return self.curve[-1]["samples"] if self.curve else 0


def read(record: Record) -> Run:
    """Read a run, which may be unfinished: its files then end at the last evaluation, or do not exist yet."""
    config, curve, described = record.config(), record.curve(), record.describe()
    if curve and "open" not in curve[-1]:
        raise InputError(f"{record.folder} was evaluated by an earlier version of dhocl: run it again")
    grown = (record.folder / "taxonomy.jsonl").exists()
    so_far = summarise(curve) if curve else {}
    return Run(
        record.folder.resolve().name,
        config,
        described["stream"],
        described["levels"],
        curve,
        record.taxonomy() if grown else Taxonomy(),
        record.summary() if record.finished else so_far,
        record.finished,
    )


def written(value: float | None, digits: int = 1) -> str:
    """Format a number for the page.

    >>> written(12.345), written(1234.5, 0), written(float("nan")), written(None)
    ('12.3', '1,234', '–', '–')
    """
    return MISSING if value is None or math.isnan(value) else f"{value:,.{digits}f}"
