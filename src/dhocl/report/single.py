"""The content of the page of one run."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from dhocl.experiment.evaluate import POPULATIONS
from dhocl.experiment.record import Record, title
from dhocl.report import figures, tree
from dhocl.report.command import command
from dhocl.report.reading import DECODINGS, HIERARCHICAL, NUMBERS, Number, Run, read, written

CONFUSED = 8  # confusions of a level that are shown


class Row(NamedTuple):
    number: Number
    values: list[float | None]  # by decoding


class PopulationRow(NamedTuple):
    """Metrics of one population with one decoding."""

    population: str
    decoding: str
    texts: list[str]


class Rank(NamedTuple):
    """What is known of a level at the end."""

    name: str
    classes: int
    images: int | None  # that were evaluated; None in a record of an earlier version
    accuracy: float | None
    confusions: list[dict[str, Any]]


class LevelRow(NamedTuple):
    """Final metrics of a level, one text per decoding."""

    rank: str
    accuracy: list[str]
    forgetting: list[str]
    calibration: list[str]


def single(record: Record) -> dict[str, Any]:
    """The variables of run.html."""
    run = read(record)
    wrong = record.mistakes()
    return {
        "run": run,
        "title": title(run.config),
        "ranks": ranks(run, wrong),
        "examples": wrong.get("examples", []),
        "decodings": list(DECODINGS),
        "facts": facts(run),
        "costs": costs(run),
        "command": command(run.config),
        "nodes": tree.draw(run.taxonomy, run.ranks),
        "links": tree.links(run.taxonomy),
        "events": tree.events(run.taxonomy),
        "branches": tree.branches(run.taxonomy, run.ranks),
        "letters": tree.enlarged(run.taxonomy),
    } | (results(run, record.matrices()) if run.curve else {})


def results(run: Run, matrices: dict[str, Tensor]) -> dict[str, Any]:
    """The variables that need at least one evaluation."""
    structure = [figures.matrices(run, matrices), figures.structure(run)]
    inside = [figures.calibration(run), *figures.predla(run), *figures.amber(run)]
    prefixes = DECODINGS.values()
    return {
        "rows": [Row(number, [run.summary[prefix + number.name] for prefix in prefixes]) for number in NUMBERS],
        "consistency": [run.summary[prefix + "path_consistency"] for prefix in prefixes],
        "numbers": [*NUMBERS, *HIERARCHICAL],
        "population_rows": population_rows(run),
        "populations": POPULATIONS,
        "levels": level_rows(run),
        "curves": [figures.accuracy(run), figures.severity(run)],
        "inside": [figures.populations(run), *inside],
        "structure": [figure for figure in structure if figure],
    }


def ranks(run: Run, wrong: dict[str, Any]) -> list[Rank]:
    """By the kept predictions; in a record without them, by its scores of path decoding."""
    by_path = run.summary.get("path.level_accuracy", {})

    def rank(level: int, width: int) -> Rank:
        key = str(level)
        images = wrong["images"][key] if wrong else None
        share = (100 * wrong["right"][key] / images if images else None) if wrong else by_path.get(key)
        return Rank(run.ranks[level], width, images, share, wrong["confusions"][key][:CONFUSED] if wrong else [])

    return [rank(level, width) for level, width in run.taxonomy.widths.items()]


def facts(run: Run) -> dict[str, str]:
    """Facts shown below the title."""
    known = {
        "method": run.config.method,
        "images learned": f"{run.samples:,}",
        "seed": str(run.config.seed),
        "backbone": run.config.backbone,
    }
    if run.finished:
        seconds = [run.summary["seconds_training"], run.summary["seconds_evaluating"]]
        known["time"] = "{} s training, {} s evaluation".format(*(written(s, 0) for s in seconds))
    return known


def costs(run: Run) -> dict[str, str]:
    """Facts about the method."""
    if not run.finished:
        return {}
    return {
        "speed": f"{written(run.summary['samples_per_second'], 0)} samples/s",
        "compute": f"{written(run.summary['cost_vs_er'], 2)} x ER",
        "state": f"{written(run.summary['state_mb'])} MB",
    }


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
