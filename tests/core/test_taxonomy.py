from __future__ import annotations

import copy

import networkx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.taxonomy import Label, Taxonomy
from tests.helpers.trees import apply, apply_one, balanced_tree, changes, completed_by_hand


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


@given(changes(), changes())
def test_a_copy_and_its_original_go_their_own_ways(first: list, second: list) -> None:
    tree = apply(first)
    twin, before = tree.copy(), _everything(tree)
    assert _everything(twin) == before
    for change in second:
        apply_one(twin, *change)
    assert _everything(tree) == before
    after = _everything(twin)
    assert after == _everything(Taxonomy.loads(twin.dumps()))
    for change in reversed(second):
        apply_one(tree, *change)
    assert _everything(twin) == after


def _everything(tree: Taxonomy) -> list[object]:
    nodes = range(len(tree))
    kept = [tree.labels, list(tree.events), tree.levels, tree.widths, tree.paths.tolist(), tree.merges]
    return [
        copy.deepcopy(kept),
        [tree.nodes(level).tolist() for level in tree.levels],
        [(tree.parent(n), tree.children(n), tree.accepted(n), tree.column(n), tree.id(tree.labels[n])) for n in nodes],
    ]


def test_a_batch_may_be_of_one() -> None:
    tree = Taxonomy()
    bird, robin, wren = (tree.add(Label(name, level)) for name, level in (("bird", 0), ("robin", 1), ("wren", 1)))
    tree.merge(wren, robin)
    one = torch.tensor([wren])
    assert tree.resolve(one).tolist() == [robin]
    assert [(level, rows.tolist(), columns.tolist()) for level, rows, columns in tree.by_level(one)] == [(1, [0], [0])]
    assert tree.complete(torch.tensor([bird])).tolist() == [[0, -1]]


@given(st.lists(st.tuples(st.text(), st.integers(0, 3)), unique=True))
def test_any_name_survives_the_event_log(names: list[tuple[str, int]]) -> None:
    tree = Taxonomy()
    for name, level in [*names, ("line\u2028separator\u0085and\nmore", 0)]:
        tree.add(Label(name, level))
    assert Taxonomy.loads(tree.dumps()).labels == tree.labels


@given(changes())
def test_columns_never_move(history: list[tuple[str, int, int]]) -> None:
    tree, before = Taxonomy(), {}
    for change in history:
        apply_one(tree, *change)
        now = {level: tree.nodes(level).tolist() for level in tree.levels}
        for level, nodes in now.items():
            assert nodes[: len(before.get(level, []))] == before.get(level, [])
            assert nodes == sorted(nodes)
            accepted = [node for node in nodes if tree.accepted(node) == node]
            assert [tree.column(node) for node in accepted] == [nodes.index(node) for node in accepted]
        before = now


@given(changes())
def test_a_synonym_stands_for_its_accepted_class(history: list[tuple[str, int, int]]) -> None:
    tree = apply(history)
    for node in range(len(tree)):
        accepted = tree.accepted(node)
        assert tree.accepted(accepted) == accepted
        assert tree.labels[accepted].level == tree.labels[node].level
        assert tree.id(tree.labels[node]) == accepted
        assert (tree.parent(node), tree.children(node)) == (tree.parent(accepted), tree.children(accepted))
        assert node == accepted or not any(node in tree.children(other) for other in range(len(tree)))
    for level in tree.levels:
        living = {tree.column(node) for node in tree.nodes(level).tolist()}
        assert set(tree.paths[:, tree.levels.index(level)].tolist()) <= living | {-1}, "no label leads to a dead column"
        assert tree.ancestors(level, level).tolist() == [tree.column(node) for node in tree.nodes(level).tolist()]
    assert tree.sizes == {level: sum(label.level == level for label in tree) for level in tree.levels}


@given(changes())
def test_tree_stays_a_forest(history: list[tuple[str, int, int]]) -> None:
    tree = apply(history)
    graph = networkx.DiGraph()
    nodes = [node for node in range(len(tree)) if tree.accepted(node) == node]
    graph.add_nodes_from(nodes)
    graph.add_edges_from((tree.parent(n), n) for n in nodes if tree.parent(n) != -1)
    assert networkx.is_directed_acyclic_graph(graph)
    for node in nodes:
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


def zoo(*labels: tuple[str, int]) -> tuple[Taxonomy, dict[str, int]]:
    tree = Taxonomy()
    return tree, {name: tree.add(Label(name, level)) for name, level in labels}


def test_a_merged_class_leaves_its_children_and_if_need_be_its_parent() -> None:
    tree, ids = zoo(("bird", 0), ("tits", 1), ("Paridae", 1), ("great tit", 2), ("blue tit", 2))
    tree.link(ids["tits"], ids["bird"])
    tree.link(ids["great tit"], ids["tits"])
    tree.link(ids["blue tit"], ids["Paridae"])
    tree.merge(ids["tits"], ids["Paridae"])
    assert tree.children(ids["Paridae"]) == [ids["great tit"], ids["blue tit"]]
    assert tree.parent(ids["Paridae"]) == ids["bird"]
    assert tree.children(ids["bird"]) == [ids["Paridae"]]
    assert tree.unanchored == []
    assert tree.complete(torch.tensor([ids["tits"], ids["great tit"]])).tolist() == [[0, 1, -1], [0, 1, 0]]
    assert tree.add(Label("tits", 1)) == ids["Paridae"]
    tree.link(ids["tits"], ids["bird"])  # by its old node: it is there already
    assert tree.events[-1].kind == "merge"
    assert tree.parent_nodes(1).tolist() == [ids["bird"], ids["bird"]]
    assert tree.distances(1).tolist() == [[0, 0], [0, 0]]


def test_synonyms_of_a_class_follow_it_when_it_is_merged() -> None:
    tree, ids = zoo(("a", 1), ("b", 1), ("c", 1))
    assert tree.merges == 0
    tree.merge(ids["a"], ids["b"])
    tree.merge(ids["b"], ids["c"])
    tree.merge(ids["a"], ids["c"])
    assert [tree.id(Label(name, 1)) for name in "abc"] == [ids["c"]] * 3
    assert tree.merges == 2
    assert len(tree.events) == 5


def test_a_renamed_class_answers_to_both_names() -> None:
    tree, ids = zoo(("robbin", 1), ("wren", 1))
    tree.rename(ids["robbin"], Label("robin", 1))
    assert tree.labels[ids["robbin"]] == Label("robin", 1)
    assert tree.id(Label("robbin", 1)) == tree.id(Label("robin", 1)) == tree.add(Label("robbin", 1)) == ids["robbin"]
    tree.rename(ids["robbin"], Label("robbin", 1))
    assert list(tree) == [("robbin", 1), ("wren", 1)]


def test_the_accepted_name_can_be_given_to_the_other_class() -> None:
    tree, ids = zoo(("Parus caeruleus", 1), ("Cyanistes caeruleus", 1))
    tree.merge(ids["Cyanistes caeruleus"], ids["Parus caeruleus"])
    tree.rename(ids["Parus caeruleus"], Label("Cyanistes caeruleus", 1))
    assert tree.labels[tree.id(Label("Parus caeruleus", 1))].name == "Cyanistes caeruleus"


def test_refused_revisions_say_why() -> None:
    tree, ids = zoo(("bird", 0), ("robin", 1), ("wren", 1))
    before = tree.dumps()
    with pytest.raises(ValueError, match=r"'robin' .* a class stays on its level"):
        tree.rename(ids["robin"], Label("redbreast", 0))
    with pytest.raises(ValueError, match=r"'wren' .* is another class: merge the two"):
        tree.rename(ids["robin"], Label("wren", 1))
    with pytest.raises(ValueError, match=r"'robin' .* and 'bird' .* their levels differ"):
        tree.merge(ids["robin"], ids["bird"])
    assert tree.dumps() == before
