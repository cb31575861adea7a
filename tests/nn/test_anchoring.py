"""Doubts about links: from outputs to gaps, from gaps to probabilities, and on samples with known links."""

from __future__ import annotations

import math

import torch

from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.nn.heads.anchoring import RIGHT, TAU, WRONG, doubts, gaps, placement, wrong
from dhocl.nn.heads.ridge import Statistics
from tests.helpers.tensors import normal
from tests.helpers.trees import balanced_tree

D = 16


def half(level: int) -> torch.Tensor:
    """Penalties."""
    return torch.full((D,), 0.5)


def test_gaps_are_relative_to_the_best_above_the_mean() -> None:
    z = torch.tensor([[0.9, 0.3, 0.0], [0.9, 0.3, 0.0]])
    torch.testing.assert_close(gaps(z, torch.tensor([0, 1])), torch.tensor([0.0, 0.6 / 0.5]))


def test_probabilities_are_those_of_the_mixture_with_the_likeliest_share() -> None:
    gap = torch.cat([torch.full((60,), 0.05), torch.full((40,), 1.0)])
    p = wrong(gap)

    def density(g: float) -> tuple[float, float]:
        normal = math.exp(-(((g - WRONG[0]) / WRONG[1]) ** 2) / 2) / (WRONG[1] * math.sqrt(2 * math.pi))
        return math.exp(-g / RIGHT) / RIGHT, normal

    def likelihood(share: float) -> float:
        return sum(math.log((1 - share) * density(g)[0] + share * density(g)[1]) for g in gap.tolist())

    share = max((i / 1000 for i in range(1, 1000)), key=likelihood)
    right, other = density(1.0)
    assert abs(float(p[-1]) - share * other / (share * other + (1 - share) * right)) < 0.01
    assert float(p[0]) < 0.01


def test_a_contradiction_counts_less_where_there_are_few() -> None:
    few, many = torch.full((100,), 0.05), torch.full((100,), 0.05)
    few[:2], many[:40] = 0.8, 0.8
    assert wrong(few)[0] < wrong(many)[0]


def world(strays: int) -> tuple[Statistics, TreeTable, Taxonomy]:
    """8 groups of 6 classes, each near the direction of its group; the first classes are linked elsewhere."""
    tree = balanced_tree(8, 6)
    directions = normal(8, D)
    phi, y = [], []
    for node in range(len(tree)):
        group = node if tree.labels[node].level == 0 else tree.parent(node)
        rows = directions[group] + 0.3 * normal(10, D, seed=node)
        phi.append(torch.nn.functional.normalize(rows))
        y += [node] * 10
    for child in tree.nodes(1).tolist()[:strays]:
        tree.link(child, (tree.parent(child) + 3) % 8)
    statistics, table = Statistics(D), TreeTable.of(tree)
    statistics.add(torch.cat(phi), torch.tensor(y), table)
    return statistics, table, tree


def test_wrong_links_are_found_and_right_ones_are_not() -> None:
    for strays in (0, 12, 20):
        statistics, table, tree = world(strays)
        expected = {child: tree.parent(child) for child in tree.nodes(1).tolist()[:strays]}
        assert doubts(statistics, table, half) == expected


def test_a_class_with_few_samples_is_not_doubted() -> None:
    statistics, table, tree = world(12)
    stray = tree.nodes(1)[0].item()
    statistics.counts.filled[stray] = 1
    assert stray not in doubts(statistics, table, half)


def test_a_tree_of_one_level_or_two_groups_is_not_doubted() -> None:
    for tree in (balanced_tree(5), balanced_tree(2, 4)):
        statistics, table = Statistics(D), TreeTable.of(tree)
        statistics.add(normal(40, D), torch.arange(40) % len(tree), table)
        assert doubts(statistics, table, half) == {}


def test_levels_without_samples_are_passed_over() -> None:
    tree = balanced_tree(4, 2)
    tree.add(Label("new", 5))
    statistics, table = Statistics(D), TreeTable.of(tree)
    statistics.add(normal(40, D), tree.nodes(1)[torch.arange(40) % 8], table)
    assert doubts(statistics, table, half) == {}


def test_placement_is_a_softmax_of_outputs() -> None:
    z = normal(2, 3)
    expected = torch.stack([torch.softmax(row / TAU, 0) for row in z])
    torch.testing.assert_close(placement(z), expected)
