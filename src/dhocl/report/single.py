"""The content of the page of one run."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from dhocl.experiment.evaluate import POPULATIONS
from dhocl.experiment.record import Record
from dhocl.report import figures, tree
from dhocl.report.command import command
from dhocl.report.reading import DECODINGS, HIERARCHICAL, NUMBERS, Number, Run, read, written


class Row(NamedTuple):
    number: Number
    values: list[float | None]  # by decoding


class PopulationRow(NamedTuple):
    """Metrics of one population with one decoding."""

    population: str
    decoding: str
    texts: list[str]


class LevelRow(NamedTuple):
    """Final metrics of a level, one text per decoding."""

    rank: str
    accuracy: list[str]
    forgetting: list[str]
    calibration: list[str]


def single(record: Record) -> dict[str, Any]:
    """The variables of run.html."""
    run = read(record)
    return {
        "run": run,
        "decodings": list(DECODINGS),
        "facts": facts(run),
        "command": command(run.config),
        "nodes": tree.draw(run.taxonomy, run.ranks),
        "links": tree.links(run.taxonomy),
        "events": tree.events(run.taxonomy),
        "branches": tree.branches(run.taxonomy, run.ranks),
    } | (results(run, record.matrices()) if run.curve else {})


def results(run: Run, matrices: dict[str, Tensor]) -> dict[str, Any]:
    """The variables that need at least one evaluation."""
    structure = [figures.matrices(run, matrices), figures.structure(run)]
    prefixes = DECODINGS.values()
    return {
        "rows": [Row(number, [run.summary[prefix + number.name] for prefix in prefixes]) for number in NUMBERS],
        "consistency": [run.summary[prefix + "path_consistency"] for prefix in prefixes],
        "numbers": [*NUMBERS, *HIERARCHICAL],
        "population_rows": population_rows(run),
        "populations": POPULATIONS,
        "levels": level_rows(run),
        "curves": [
            figures.accuracy(run),
            figures.severity(run),
            figures.populations(run),
            figures.calibration(run),
            *figures.predla(run),
            *figures.amber(run),
        ],
        "structure": [figure for figure in structure if figure],
    }


def facts(run: Run) -> dict[str, str]:
    """Facts shown above the metrics."""
    widths = [f"{width} {run.ranks[level]}" for level, width in run.taxonomy.widths.items()]
    known = {
        "data set": run.config.dataset,
        "seed": str(run.config.seed),
        "backbone": run.config.backbone,
        "samples seen": f"{run.samples:,}",
        "classes known": " / ".join(widths) or "none",
    }
    if run.finished:
        seconds = [run.summary["seconds_training"], run.summary["seconds_evaluating"]]
        known["speed"] = f"{written(run.summary['samples_per_second'], 0)} samples/s"
        known["compute"] = f"{written(run.summary['cost_vs_er'], 2)} x ER"
        known["state"] = f"{written(run.summary['state_mb'])} MB"
        known["time"] = "{} s training, {} s evaluation".format(*(written(s, 0) for s in seconds))
    return known


def population_rows(run: Run) -> list[PopulationRow]:
    def texts(population: str, prefix: str) -> list[str]:
        start = f"{population}.{prefix}" if population else prefix
        return [written(run.summary[start + number.name], number.digits) for number in [*NUMBERS, *HIERARCHICAL]]

    return [
        PopulationRow(population, decoding, texts(population, prefix))
        for population in POPULATIONS
        for decoding, prefix in DECODINGS.items()
    ]


def level_rows(run: Run) -> list[LevelRow]:
    def texts(key: str, level: int) -> list[str]:
        return [written(run.summary[prefix + key].get(str(level))) for prefix in DECODINGS.values()]

    return [
        LevelRow(
            run.ranks[level],
            texts("level_accuracy", level),
            texts("level_forgetting", level),
            texts("level_ece", level),
        )
        for level in run.taxonomy.levels
    ]
