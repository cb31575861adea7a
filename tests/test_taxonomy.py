from __future__ import annotations

import networkx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dhocl.taxonomy import Label, Taxonomy
from trees import apply, apply_one, balanced_tree, changes, completed_by_hand


@given(changes())
def test_completion_walks_up(history: list[tuple[str, int, int]]) -> None:
    tree = apply(history)
    if len(tree):
        expected = [completed_by_hand(tree, node) for node in range(len(tree))]
        assert tree.complete(torch.arange(len(tree))).tolist() == expected


@given(changes(), changes())
def test_completion_is_right_when_read_between_changes(first: list, second: list) -> None:
    tree = apply(first)
    _ = tree.paths  # what is cached now must not outlive the changes that follow
    for change in second:
        apply_one(tree, *change)
        assert tree.paths.tolist() == [completed_by_hand(tree, node) for node in range(len(tree))]


@given(changes())
def test_event_log_gives_the_same_tree(history: list[tuple[str, int, int]]) -> None:
    tree = apply(history)
    again = Taxonomy.loads(tree.dumps())
    assert again.labels == tree.labels
    assert again.levels == tree.levels
    assert list(again.events) == list(tree.events)
    assert [again.parent(n) for n in range(len(tree))] == [tree.parent(n) for n in range(len(tree))]
    assert again.paths.tolist() == tree.paths.tolist()


@given(st.lists(st.tuples(st.text(), st.integers(0, 3)), unique=True))
def test_any_name_survives_the_event_log(names: list[tuple[str, int]]) -> None:
    tree = Taxonomy()
    for name, level in [*names, ("line\u2028separator\u0085and\nmore", 0)]:
        tree.add(Label(name, level))
    assert Taxonomy.loads(tree.dumps()).labels == tree.labels


@given(changes())
def test_columns_never_move(history: list[tuple[str, int, int]]) -> None:
    columns: dict[Label, int] = {}
    for end in range(len(history)):
        tree = apply(history[: end + 1])
        for node, label in enumerate(tree.labels):
            assert columns.setdefault(label, tree.column(node)) == tree.column(node)
        assert all(tree.nodes(level).tolist() == sorted(tree.nodes(level).tolist()) for level in tree.levels)


@given(changes())
def test_tree_stays_a_forest(history: list[tuple[str, int, int]]) -> None:
    tree = apply(history)
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(tree)))
    graph.add_edges_from((tree.parent(n), n) for n in range(len(tree)) if tree.parent(n) != -1)
    assert networkx.is_directed_acyclic_graph(graph)
    for node in range(len(tree)):
        assert set(tree.descendants(node)) == networkx.descendants(graph, node)
        assert set(tree.lineage(node)) - {node} == networkx.ancestors(graph, node)


def test_distances_are_lca_heights() -> None:
    tree = balanced_tree(2, 3, 2)
    graph = networkx.Graph()
    for node in range(len(tree)):
        graph.add_edge(node, tree.parent(node) if tree.parent(node) != -1 else "root")
    leaves = tree.nodes(2).tolist()
    steps = dict(networkx.all_pairs_shortest_path_length(graph))
    expected = [[steps[a][b] // 2 for b in leaves] for a in leaves]  # up to the LCA and down again
    assert tree.distances(2).tolist() == expected


def test_a_level_can_appear_between_known_ones() -> None:
    tree = Taxonomy()
    bird, robin = tree.add(Label("bird", 0)), tree.add(Label("robin", 2))
    tree.link(robin, bird)
    thrush = tree.add(Label("thrush", 1))
    assert tree.levels == [0, 1, 2]
    assert tree.complete(torch.tensor([robin])).tolist() == [[0, -1, 0]]
    tree.link(thrush, bird)
    tree.link(robin, thrush)
    assert tree.complete(torch.tensor([robin])).tolist() == [[0, 0, 0]]
    assert tree.parents(2).tolist() == [0]
    assert tree.parents(0).tolist() == [-1]


@pytest.mark.parametrize(
    ("child", "parent", "message"),
    [
        ("robin", "robin", "'robin' .* makes a cycle"),
        ("bird", "robin", "'bird' .* makes a cycle"),
        ("crow", "robin", "breaks the level order"),
    ],
)
def test_refused_links_say_why(child: str, parent: str, message: str) -> None:
    tree = Taxonomy()
    ids = {name: tree.add(Label(name, level)) for name, level in [("bird", 0), ("robin", 2), ("crow", 2)]}
    tree.link(ids["robin"], ids["bird"])
    before = tree.dumps()
    with pytest.raises(ValueError, match=message):
        tree.link(ids[child], ids[parent])
    assert tree.dumps() == before


def test_unknown_nodes_are_refused() -> None:
    tree = Taxonomy()
    bird = tree.add(Label("bird", 0))
    with pytest.raises(KeyError, match="node 7 is not in the taxonomy"):
        tree.link(7, bird)
    with pytest.raises(KeyError, match="'crow'"):
        tree.id(Label("crow", 2))


def test_unanchored_are_those_without_any_link() -> None:
    tree = Taxonomy()
    bird, robin, crow = (tree.add(Label(name, level)) for name, level in [("bird", 0), ("robin", 1), ("crow", 1)])
    assert tree.unanchored == [robin, crow]
    tree.link(robin, bird)
    assert tree.unanchored == [crow]
    tree.unlink(robin)
    assert tree.unanchored == [robin, crow]
