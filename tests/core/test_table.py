"""The tree as integers against the taxonomy that it was taken from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.decode import known_paths
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import Taxonomy
from tests.helpers.trees import apply, balanced_tree, changes


@given(changes())
def test_it_says_what_the_taxonomy_says(history: list[tuple[str, int, int]]) -> None:
    tree = apply(history)
    table = TreeTable.of(tree)
    assert len(table) == len(tree)
    assert table.levels == tree.levels
    for level in tree.levels:
        assert table.width(level) == tree.widths[level]
        assert table.nodes(level).tolist() == tree.nodes(level).tolist()
        for at in tree.levels:
            assert table.ancestors(level, at).tolist() == tree.ancestors(level, at).tolist()
    if len(tree):
        assert sorted(table.leaves.tolist()) == sorted(known_paths(tree).tolist())
    for node in range(len(tree)):
        assert int(table.parents[node]) == tree.parent(node)
        assert bool(table.is_leaf[node]) == (tree.accepted(node) == node and not tree.children(node))


def test_it_stays_as_it_was_taken() -> None:
    tree = balanced_tree(2, 2)
    table = TreeTable.of(tree)
    before = table.paths.tolist()
    tree.link(tree.nodes(1)[0].item(), tree.nodes(0)[1].item())
    assert table.paths.tolist() == before
    assert TreeTable.of(tree).paths.tolist() == tree.paths.tolist() != before


def test_it_is_taken_once_for_each_version_of_the_tree() -> None:
    tree = balanced_tree(2, 2)
    assert TreeTable.of(tree) is TreeTable.of(tree)


def test_state() -> None:
    table = TreeTable.of(balanced_tree(2, 3))
    again = TreeTable.from_state(table.state_dict())
    assert again.levels == table.levels
    assert again.paths.tolist() == table.paths.tolist()
    assert again.node_levels.tolist() == table.node_levels.tolist()


def test_an_empty_tree() -> None:
    assert TreeTable.of(Taxonomy()).levels == TreeTable.empty().levels == []
    assert len(TreeTable.empty()) == 0


@given(changes(), st.integers(0, 30))
def test_without_a_link_it_is_the_tree_with_that_link_removed(history: list[tuple[str, int, int]], place: int) -> None:
    tree = apply([("add", 0, 0), *history])
    table, node = TreeTable.of(tree), tree.accepted(place % len(tree))
    parent = tree.parent(node)
    tree.unlink(node)
    assert table.without({node: parent}).paths.tolist() == tree.paths.tolist()
    assert table.without({node: parent + 1}).paths.tolist() == table.paths.tolist()
    assert table.without({len(tree): 0}).paths.tolist() == table.paths.tolist()
