"""The losses once more, by loops over rows, levels and classes, straight from their definitions.

`y` holds nodes as they were labelled; labels are completed here by walking up the tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from dhocl.core.taxonomy import Taxonomy
from tests.helpers.trees import completed_by_hand

Logits = dict[int, Tensor]


def total(per_level: list[list[Tensor]], rows: int, average: str) -> Tensor:
    """Σ over levels of the mean of their terms: over the terms of the level, or over all rows of the batch."""
    return sum(
        (torch.stack(terms).sum() / (len(terms) if average == "level" else rows) for terms in per_level if terms),
        torch.zeros(()),
    )


def by_level(y: list[int], tree: Taxonomy, term: Callable[[int, int, int], Tensor]) -> list[list[Tensor]]:
    """term(row, place, column) of every label, completed upward, level by level."""
    paths = [completed_by_hand(tree, node) for node in y]
    return [
        [term(row, place, path[place]) for row, path in enumerate(paths) if path[place] >= 0]
        for place in range(len(tree.levels))
    ]


def multi_ce(logits: Logits, y: list[int], tree: Taxonomy, average: str) -> Tensor:
    def term(row: int, place: int, column: int) -> Tensor:
        z = logits[tree.levels[place]][row]
        return z.exp().sum().log() - z[column]

    return total(by_level(y, tree, term), len(y), average)


def soft_ce(logits: Logits, y: list[int], tree: Taxonomy, average: str) -> Tensor:
    def term(row: int, place: int, column: int) -> Tensor:
        level = tree.levels[place]
        nodes = tree.nodes(level).tolist()
        own = completed_by_hand(tree, nodes[column])
        weights = []
        for node in nodes:
            other = completed_by_hand(tree, node)
            shared = [s for s in range(place + 1) if own[s] == other[s] >= 0]
            height = place - max(shared, default=-1)
            weights.append(math.exp(-5.0 * height / (place + 1)))
        p = logits[level][row].softmax(0)
        q = [weight / sum(weights) for weight in weights]
        return sum(q[c] * (math.log(q[c]) - p[c].log()) for c in range(len(nodes)))

    return total(by_level(y, tree, term), len(y), average)


def haf(logits: Logits, y: list[int], tree: Taxonomy, average: str) -> Tensor:
    loss = multi_ce(logits, y, tree, average)
    for place in range(len(tree.levels) - 1):
        coarse, fine = tree.levels[place : place + 2]
        family: dict[int, list[int]] = {}
        for child, node in enumerate(tree.nodes(fine).tolist()):
            if (column := completed_by_hand(tree, node)[place]) >= 0:
                family.setdefault(column, []).append(child)
        if len(family) < 2:
            continue
        for row in range(len(y)):
            p = torch.stack([logits[coarse][row][column].exp() for column in family])
            q = torch.stack([logits[fine][row][children].exp().sum() for children in family.values()])
            p, q = p / p.sum(), q / q.sum()
            m = (p + q) / 2
            js = 0.5 * (p * (p / m).log()).sum() + 0.5 * (q * (q / m).log()).sum()
            loss = loss + 0.5 * js / len(y)
    return loss


def masses(row: Logits, tree: Taxonomy) -> dict[tuple[int, int], Tensor]:
    """(level, column) -> Σ exp z over the childless classes below it; synonyms count for their accepted class."""
    found: dict[tuple[int, int], Tensor] = {}
    for level, z in row.items():
        for column, node in enumerate(tree.nodes(level).tolist()):
            if not tree.children(node):
                for ancestor in tree.lineage(node):
                    key = tree.labels[ancestor].level, tree.column(ancestor)
                    found[key] = found.get(key, 0) + z[column].exp()
    return found


def leaf_softmax(logits: Logits, tree: Taxonomy) -> Logits:
    rows = []
    for i in range(len(next(iter(logits.values())))):
        mass = masses({level: z[i] for level, z in logits.items()}, tree)
        p = {h: torch.stack([mass.get((h, c), z.new_zeros(())) for c in range(z.shape[1])]) for h, z in logits.items()}
        rows.append({level: values / values.sum() for level, values in p.items()})
    return {level: torch.stack([row[level] for row in rows]) for level in logits}


def hxe(logits: Logits, y: list[int], tree: Taxonomy, average: str, alpha: float = 0.5) -> Tensor:
    def term(row: int, place: int, column: int) -> Tensor:
        level = tree.levels[place]
        mass = masses({h: z[row] for h, z in logits.items()}, tree)
        parent = tree.parent(int(tree.nodes(level)[column]))
        if parent >= 0:
            given = mass[tree.labels[parent].level, tree.column(parent)]
        else:
            given = sum(value for (h, _), value in mass.items() if h == level)
        return -math.exp(-alpha * place) * (mass[level, column] / given).log()

    return total(by_level(y, tree, term), len(y), average)


def hcon(unit: Tensor, y: list[int], tree: Taxonomy) -> Tensor:
    """Of the unit features of two views, all images of the first before those of the second."""
    paths = [completed_by_hand(tree, node) for node in y] * 2
    n, levels = len(paths), len(tree.levels)
    loss, finer = torch.zeros(()), torch.zeros(())
    for order, place in enumerate(range(levels - 1, -1, -1), 1):
        column = [path[place] for path in paths]
        anchors = []
        for i in range(n):
            others = [j for j in range(n) if j != i and column[j] >= 0]
            positives = [j for j in others if column[j] == column[i]]
            if positives:
                below = sum((unit[i] @ unit[j] / 0.1).exp() for j in others).log()
                anchors.append(-sum(unit[i] @ unit[j] / 0.1 - below for j in positives) / len(positives))
        here = torch.stack(anchors).mean() if anchors else torch.zeros(())
        finer = torch.maximum(finer, here)
        loss = loss + 2 ** (1 / order) * finer
    return loss / (levels + 1)
