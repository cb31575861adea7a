"""The drawing of a tree: every class has its place, and names are drawn where there is room."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings

from dhocl.report.tree import angles, branches, draw, enlarged, links, walk
from tests.helpers.trees import apply, balanced_tree, changes


@settings(max_examples=40, deadline=None)
@given(changes())
def test_any_tree_can_be_drawn(history: list[tuple[str, int, int]]) -> None:
    tree = apply(history)
    ranks = [f"rank {level}" for level in range(5)]
    nodes, lines = draw(tree, ranks), links(tree)
    assert [node.name for node in nodes] == [label.name for label in tree.labels]
    assert [n for n, node in enumerate(nodes) if node.loose] == tree.unanchored
    accepted = [node for node in range(len(tree)) if tree.accepted(node) == node]
    assert sorted(walk(tree)) == accepted
    assert all(nodes[node][:2] == nodes[tree.accepted(node)][:2] for node in range(len(tree)))
    last = {(line.child, line.parent) for line in lines if line.last}
    assert last == {(node, tree.parent(node)) for node in accepted if tree.parent(node) >= 0}
    assert sum(1 + branch.below for branch in branches(tree, ranks)) == len(accepted)


def test_a_drawing_has_rings_and_no_names_in_a_crowd() -> None:
    few, many = balanced_tree(3, 4), balanced_tree(10, 100)
    nodes = draw(few, ["a", "b"])
    radii = {node.place: round(math.hypot(node.x, node.y)) for node in nodes}
    assert all(abs(math.hypot(node.x, node.y) - radii[node.place]) < 1 for node in nodes)
    assert all(node.label for node in nodes)
    gaps = [b - a for a, b in pairwise(sorted(angles(few)[3:]))]
    assert gaps == pytest.approx([2 * math.pi / 12] * 11)
    assert [bool(node.label) for node in draw(many, ["a", "b"])] == [True] * 10 + [False] * 1000


def test_a_small_tree_has_larger_letters() -> None:
    assert [enlarged(balanced_tree(1, leaves)) for leaves in (4, 60, 500)] == [2.2, 1.0, 1.0]
    assert 1 < enlarged(balanced_tree(3, 10)) < 2
