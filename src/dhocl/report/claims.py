"""The claims of the paper, and ours, as comparisons of rows of recipes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

from dhocl.experiment.recipes.printed import MAIN
from dhocl.experiment.recipes.rows import LOSSES
from dhocl.report.evidence import Arm, Comparison, Decline, Score

THREE = ("AAUC", "FAUC", "MS")
FIVE = (*THREE, "FFAcc", "FAAcc")
POLICIES = ("er", "cbrs", "clib", "gss")
USUAL = {"conditions": "as it is"}  # the panels of a recipe that has others too
PHOTOGRAPHS = ("cifar100", "cub200")
SELF_SUPERVISED = "resnet50-ssl"  # a folder, whose name is that of the backbone in rows
METHODS_OF_PAPER = tuple(row for row in MAIN["cifar100"] if row != "halo")


class Part(NamedTuple):
    """A statement that holds if every comparison supports it."""

    sentence: str
    comparisons: tuple[Comparison, ...]


class NoneBest(NamedTuple):
    """The statement that no row dominates: for every row, another is better in some metric on some data set.

    Every comparison is of a row with another one, in both orders.
    """

    sentence: str
    comparisons: tuple[Comparison, ...]


class Claim(NamedTuple):
    name: str
    sentence: str
    parts: tuple[Part | NoneBest, ...]


def better(first: str, second: str, metric: str, *recipes: str) -> Comparison:
    """Row `first` is better than row `second`, in any of the recipes."""
    arms = [[Arm(name, row, USUAL.get(name, "")) for row in (first, second)] for name in recipes]
    return Comparison(first, second, tuple((Score(metric, a), Score(metric, b)) for a, b in arms))


def under(recipe: str, first: str, second: str) -> list[tuple[Arm, Arm]]:
    """HALO under two conditions, which are rows of `recipe`, and panels of `conditions`."""
    a, b = (USUAL["conditions"] if name == "delay 1" else name for name in (first, second))
    return [
        (Arm(recipe, first), Arm(recipe, second)),
        (Arm("conditions", "halo", a), Arm("conditions", "halo", b)),
    ]


def easier(recipe: str, first: str, second: str, metric: str) -> Comparison:
    """HALO is better under the first condition than under the second."""
    return Comparison(
        first, second, tuple((Score(metric, a), Score(metric, b)) for a, b in under(recipe, first, second))
    )


def regrouped(row: str) -> list[Decline]:
    """The loss of FFAcc from 5 to 50 groups."""
    return [
        Decline("FFAcc", Arm("groups", f"{row}, 5 groups"), Arm("groups", f"{row}, 50 groups")),
        Decline("FFAcc", Arm("conditions", row, "5 groups"), Arm("conditions", row, "50 groups")),
    ]


def most_sensitive(before: str) -> tuple[Comparison, ...]:
    """ACIL loses more AAUC than the others from a backbone to a self-supervised one."""

    def loss(row: str) -> Decline:
        return Decline("AAUC", Arm("backbones", f"{row} {before}"), Arm("backbones", f"{row} {SELF_SUPERVISED}"))

    return tuple(Comparison("acil", row, ((loss("acil"), loss(row)),)) for row in ("er", "halo", "amber"))


def with_backbone(row: str, metric: str) -> Score:
    return Score(metric, Arm("backbones", f"{row} {SELF_SUPERVISED}"))


def none_best(sentence: str, recipe: str, rows: Sequence[str]) -> NoneBest:
    pairs = permutations(rows, 2)
    return NoneBest(sentence, tuple(better(a, b, metric, recipe) for a, b in pairs for metric in FIVE))


CLAIMS = (
    Claim(
        "Claim 1",
        "HALO is the best method in AAUC, FAUC and MS.",
        (
            Part(
                "HALO is better than every other method of the paper.",
                tuple(better("halo", row, metric, "main") for row in METHODS_OF_PAPER for metric in THREE),
            ),
        ),
    ),
    Claim(
        "Claim 2",
        "PredLA is better than both of its parts, and HPR adds a little more.",
        (
            Part(
                "PredLA is better than the linear and than the analytic head alone.",
                tuple(better("predla", row, metric, "ablation") for row in ("linear", "analytic") for metric in THREE),
            ),
            Part(
                "HALO is better than PredLA without HPR.",
                tuple(better("halo", "predla", metric, "ablation", "main") for metric in THREE),
            ),
        ),
    ),
    Claim(
        "Claim 3",
        "No hierarchical loss and no memory policy dominates.",
        (
            none_best("No loss is best everywhere.", "losses", tuple(LOSSES)),
            none_best("No memory policy is best everywhere.", "memory_policies", POLICIES),
        ),
    ),
    Claim(
        "Claim 4",
        "ACIL is strong at the finest level and weak at the coarsest; ER is the reverse, and suffers from more groups.",
        (
            Part(
                "At the end, ACIL is above ER at the finest level.",
                (better("acil", "er", "FFAcc", "main", "best", "forgetting", "conditions"),),
            ),
            Part(
                "At the end, ER is above ACIL at the coarsest level.",
                (better("er", "acil", "level_accuracy.0", "main", "best", "forgetting", "conditions"),),
            ),
            Part(
                "From 5 to 50 groups, ER loses more FFAcc than ACIL.",
                (Comparison("er", "acil", tuple(zip(regrouped("er"), regrouped("acil"), strict=True))),),
            ),
        ),
    ),
    Claim(
        "Claim 5",
        "Wrong links hurt HALO more than missing links, delay costs mainly MS, and larger buffers help.",
        (
            Part(
                "With 40 % of the links missing, AAUC is above that with 40 % wrong.",
                (easier("hierarchy_noise", "vacant 40 %", "noise 40 %", "AAUC"),),
            ),
            Part(
                "A delay of 50 batches makes MS worse, relatively more than AAUC.",
                (
                    easier("delay", "delay 1", "delay 50", "MS"),
                    Comparison(
                        "MS",
                        "AAUC",
                        tuple(
                            (Decline("MS", before, after, True), Decline("AAUC", before, after, True))
                            for before, after in under("delay", "delay 1", "delay 50")
                        ),
                    ),
                ),
            ),
            Part(
                "A buffer of 5,000 images gives a higher AAUC than one of 100.",
                (easier("buffer", "buffer 5000", "buffer 100", "AAUC"),),
            ),
        ),
    ),
    Claim(
        "Claim 6",
        "HPR moves the distances between prototypes toward those in the tree.",
        (
            Part(
                "The correlation of both distances is higher with HPR than without.",
                (better("with HPR", "without HPR", "structure.-1", "prototype_structure"),),
            ),
        ),
    ),
    Claim(
        "AMBER",
        "AMBER is better than HALO on every data set, and with doubled side than joint training.",
        (
            Part(
                "AMBER is better than HALO.",
                tuple(better("amber", "halo", metric, "main", "best", "conditions") for metric in THREE),
            ),
            Part(
                "AMBER with doubled side is better than HALO.",
                tuple(better("amber, doubled side", "halo", metric, "main", "best") for metric in THREE),
            ),
            Part(
                "AMBER with doubled side is better than joint training on CIFAR-100 and CUB-200.",
                tuple(
                    better("amber, doubled side", "joint", metric, "main", "best")._replace(datasets=PHOTOGRAPHS)
                    for metric in THREE
                ),
            ),
        ),
    ),
    Claim(
        "Backbones",
        "ACIL is the most sensitive to pretraining, and AMBER is better than HALO on weak features too.",
        (
            Part(
                "From a supervised to a self-supervised ResNet-50, ACIL loses more AAUC than the others.",
                most_sensitive("resnet50-supervised"),
            ),
            Part(
                "From EfficientNet-Lite0 to the self-supervised ResNet-50, ACIL loses more AAUC than the others.",
                most_sensitive("EfficientNet-Lite0"),
            ),
            Part(
                "With the self-supervised ResNet-50, AMBER is better than HALO.",
                tuple(
                    Comparison("amber", "halo", ((with_backbone("amber", metric), with_backbone("halo", metric)),))
                    for metric in THREE
                ),
            ),
        ),
    ),
)
