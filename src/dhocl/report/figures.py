"""The figures of the page of a run."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from markupsafe import Markup
from torch import Tensor

from dhocl.core.taxonomy import Taxonomy
from dhocl.experiment.evaluate import POPULATIONS
from dhocl.report.reading import Run
from dhocl.report.svg import COLOURS, Line, Panel, heatmaps, plot
from dhocl.report.tree import walk


class Key(NamedTuple):
    """An entry of a legend."""

    name: str
    colour: str = "currentColor"
    dashed: bool = False


class Shown(NamedTuple):
    title: str
    svg: Markup
    keys: list[Key]
    caption: str = ""


DECODING_KEYS = [Key("level by level"), Key("consistent paths", dashed=True)]


def colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def accuracy(run: Run) -> Shown:
    """Accuracy of each level, and below it the number of known classes."""
    levels = run.taxonomy.levels
    lines = [line for level in levels for line in _both(run, colour(level), "level_accuracy", str(level))]
    widths = [_line(run, colour(level), "classes", str(level)) for level in levels]
    return Shown(
        "Accuracy of each level",
        plot("accuracy", [Panel(lines, "accuracy, %", 2.5), Panel(widths, "classes known", 1.1)]),
        _level_keys(run) + DECODING_KEYS,
        f"{POPULATIONS['']} The task gets harder with more classes.",
    )


def populations(run: Run) -> Shown:
    """The accuracy of both populations, predicted level by level."""
    lines = [_line(run, colour(0), "accuracy"), _line(run, colour(1), "open", "accuracy")]
    return Shown(
        "Accuracy of both populations",
        plot("populations", [Panel(lines, "accuracy, %", 3.6)]),
        [Key("streamed", colour(0)), Key("open", colour(1))],
        f"Averaged over the levels, predicted level by level. Open: {POPULATIONS['open']}",
    )


def severity(run: Run) -> Shown:
    shades = {"ms": Key("all images", colour(3)), "ms_mistakes": Key("mistakes only", colour(4))}
    lines = [line for name, key in shades.items() for line in _both(run, key.colour, name)]
    return Shown(
        "Mistake severity",
        plot("severity", [Panel(lines, "height of common ancestor", 3.6)]),
        [*shades.values(), *DECODING_KEYS],
        "Height of the lowest common ancestor of the predicted and the true class: 1 for siblings. Lower is better.",
    )


def predla(run: Run) -> list[Shown]:
    """Weights and temperatures of the two heads; empty if the method does not mix heads."""
    if not any(stat.startswith("alpha_linear.") for scores in run.curve for stat in scores["learner"]):
        return []

    def heads(stat: str) -> list[Line]:
        return [
            _line(run, colour(level), "learner", f"{stat}_{head}.{level}", dashed=head == "linear")
            for level in run.taxonomy.levels
            for head in ("analytic", "linear")
        ]

    keys = [*_level_keys(run), Key("analytic head"), Key("linear head", dashed=True)]
    return [
        Shown(
            "PredLA: weights of the two heads",
            plot("weights", [Panel(heads("alpha"), "weight α")]),
            keys,
            "Weight of each head at each level; the two sum to 1.",
        ),
        Shown(
            "PredLA: temperatures of the two heads",
            plot("temperatures", [Panel(heads("tau"), "temperature τ", log=True)]),
            keys,
            "A lower temperature makes a head more confident.",
        ),
    ]


def calibration(run: Run) -> Shown:
    """Calibration error of each level."""
    lines = [line for level in run.taxonomy.levels for line in _both(run, colour(level), "level_ece", str(level))]
    return Shown(
        "Calibration error of each level",
        plot("calibration", [Panel(lines, "ECE, %", 3.6)]),
        _level_keys(run) + DECODING_KEYS,
        "Mean gap between confidence and accuracy, in 15 bins of confidence. Lower is better.",
    )


def amber(run: Run) -> list[Shown]:
    """What was completed, and how much each level is trusted; empty for other methods."""
    if not any("waiting" in scores["learner"] for scores in run.curve):
        return []
    shares = {
        "completed": Key("completed at the finest level", colour(0)),
        "found_again": Key("hidden labels found again", colour(1)),
    }
    waiting = _line(run, colour(2), "learner", "waiting")
    betas = [_line(run, colour(level), "learner", f"beta.{level}") for level in run.taxonomy.levels]
    return [
        Shown(
            "AMBER: labels completed downward",
            plot(
                "completion",
                [
                    Panel([_line(run, key.colour, "learner", name) for name, key in shares.items()], "share", 2.5),
                    Panel([waiting], "samples waiting", 1.1),
                ],
            ),
            list(shares.values()),
            "Share of the samples in the window whose label was completed at the finest level. And of new labels whose "
            "parent is known: the share that is found again when only the parent is given, over all so far.",
        ),
        Shown(
            "AMBER: reliability of each level",
            plot("reliability", [Panel(betas, "reliability β", log=True)]),
            _level_keys(run),
            "Factor of the outputs of a level in the distribution over paths. A higher one counts more.",
        ),
    ]


def structure(run: Run) -> Shown | None:
    """Correlation of prototype distances with those of the tree, over the stream."""
    found = {name for scores in run.curve for name, value in scores["structure"].items() if value is not None}
    names = sorted(found, key=level_of)
    if not names:
        return None
    lines = [_line(run, colour(level_of(name)), "structure", name) for name in names]
    return Shown(
        "Prototype distances and tree distances",
        plot("structure", [Panel(lines, "correlation", 2.4)]),
        [Key(run.ranks[level_of(name)], colour(level_of(name))) for name in names],
        "Correlation of the distances between prototypes with those in the known tree, over all pairs of classes of a "
        "level. It is not defined while all tree distances are equal.",
    )


def matrices(run: Run, found: dict[str, Tensor]) -> Shown | None:
    """Prototype distances and tree distances of the finest level, in the order of the tree."""
    if not found:
        return None
    name = max(found, key=level_of)
    level, tree = level_of(name), run.taxonomy
    order = in_order(tree, level)
    pair = {"between prototypes": found[name], "in the known tree": tree.distances(level)}
    ordered = {title: scaled(matrix[order][:, order]) for title, matrix in pair.items()}
    cuts, groups = blocks(tree, level, order)
    value = run.curve[-1]["structure"].get(name)
    caption = "Their correlation is not defined." if value is None else f"Their correlation is {value:.2f}."
    names = f" Lines divide the {len(groups)} blocks: {', '.join(groups)}." if 1 < len(groups) <= 20 else ""
    return Shown(
        f"Distances between classes, level “{run.ranks[level]}”",
        heatmaps("matrices", ordered, cuts),
        [],
        f"{caption} Rows and columns are in the order of the tree; each matrix is scaled to its range.{names}",
    )


def in_order(tree: Taxonomy, level: int) -> Tensor:
    """(classes,) columns of a level, in the order of the tree."""
    return torch.tensor([tree.column(node) for node in walk(tree) if tree.labels[node].level == level])


def blocks(tree: Taxonomy, level: int, order: Tensor) -> tuple[list[int], list[str]]:
    """Rows at which the ancestor at the coarsest level changes, and the names of the blocks."""
    coarsest = tree.levels[0]
    above = tree.ancestors(level, coarsest)[order].tolist()
    starts = [row for row in range(len(above)) if row == 0 or above[row] != above[row - 1]]
    tops = tree.nodes(coarsest).tolist()
    names = [tree.labels[tops[above[row]]].name if above[row] >= 0 else "outside the tree" for row in starts]
    return starts[1:], names


def scaled(matrix: Tensor) -> Tensor:
    """Scale the distances between different classes to [0, 1]; the diagonal becomes 0."""
    matrix = matrix.double()
    others = matrix[~torch.eye(len(matrix), dtype=torch.bool)]
    if not len(others) or others.max() == others.min():
        return (matrix > 0).double()
    return ((matrix - others.min()) / (others.max() - others.min())).clamp(0, 1)


def level_of(name: str) -> int:
    """
    >>> level_of("prototypes.2")
    2
    """
    return int(name.split(".")[1])


def _level_keys(run: Run) -> list[Key]:
    return [Key(run.ranks[level], colour(level)) for level in run.taxonomy.levels]


def _line(run: Run, shade: str, *keys: str, dashed: bool = False) -> Line:
    """The value under these nested keys in each evaluation, if there is one."""
    found = []
    for scores in run.curve:
        value: Any = scores
        for key in keys:
            value = value.get(key) if value is not None else None
        found.append(value)
    return Line([scores["samples"] for scores in run.curve], found, shade, dashed)


def _both(run: Run, shade: str, *keys: str) -> list[Line]:
    """A solid line for prediction level by level, a dashed one for consistent paths."""
    return [_line(run, shade, *keys), _line(run, shade, "path", *keys, dashed=True)]
