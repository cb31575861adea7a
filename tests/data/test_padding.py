from __future__ import annotations

from itertools import groupby, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dhocl.data.lineage import grow
from dhocl.data.padding import Path, branching, pad


@st.composite
def trees(draw: st.DrawFn) -> list[Path]:
    """The paths to the leaves of a tree (or of several), node by node below any earlier one."""
    parents = [draw(st.integers(-1, node - 1)) for node in range(draw(st.integers(1, 30)))]
    paths: list[Path] = []
    for node, parent in enumerate(parents):
        paths.append((*(paths[parent] if parent >= 0 else ()), str(node)))
    return [path for node, path in enumerate(paths) if node not in parents]


seeds = st.one_of(st.none(), st.integers(0, 1000))


def padded(paths: list[Path], seed: int | None) -> list[Path]:
    return pad(paths, None if seed is None else np.random.default_rng(seed))


@given(trees(), seeds)
def test_every_path_has_the_depth_of_the_tree_and_keeps_its_nodes(paths: list[Path], seed: int | None) -> None:
    for path, long in zip(paths, padded(paths, seed), strict=True):
        assert len(long) == max(map(len, paths))
        assert tuple(name for name, _ in groupby(long)) == path


@given(trees(), seeds)
def test_the_result_is_a_tree(paths: list[Path], seed: int | None) -> None:
    parents: dict[tuple[str, int], set[str]] = {}
    for path in padded(paths, seed):
        for level, (above, name) in enumerate(pairwise(path), 1):
            parents.setdefault((name, level), set()).add(above)
    assert all(len(names) == 1 for names in parents.values())
    tree, leaves = grow(padded(paths, seed))
    assert (tree.paths[leaves] >= 0).all()


@given(trees(), st.integers(0, 1000))
def test_the_seed_decides(paths: list[Path], seed: int) -> None:
    assert padded(paths, seed) == padded(paths, seed)


@given(trees(), seeds)
def test_only_what_lies_above_a_leaf_is_repeated(paths: list[Path], seed: int | None) -> None:
    for path, long in zip(paths, padded(paths, seed), strict=True):
        assert len(path) == 1 or long.count(path[-1]) == 1
        if seed is None:
            assert long[: len(path) - 1] == path[:-1], "only the last ancestor is repeated"


def test_each_ancestor_is_as_likely_to_be_repeated() -> None:
    short, long = ("a", "b", "c", "leaf"), tuple("zyxwvuts")
    rng = np.random.default_rng(0)
    found = [pad([short, long], rng)[0] for _ in range(3000)]
    counts = np.array([[path.count(name) - 1 for name in "abc"] for path in found])
    assert (counts.sum(1) == 4).all()
    assert np.abs(counts.mean(0) - 4 / 3).max() < 4 * np.sqrt(4 * 2 / 9 / 3000)


def test_paths_through_a_node_agree_on_where_it_starts() -> None:
    paths = [("a", "b", "1"), ("a", "b", "c", "2"), ("a", "b", "c", "d", "3"), ("e", "f", "g", "h", "i", "j", "k")]
    for seed in range(50):
        found = padded(paths, seed)
        assert len({path.index("b") for path in found[:3]}) == 1
        assert len({path.index("c") for path in found[1:3]}) == 1


@given(trees())
def test_nodes_that_tell_no_leaves_apart_are_left_out(paths: list[Path]) -> None:
    kept = branching(paths)
    assert [path[-1] for path in kept] == [path[-1] for path in paths]
    children: dict[str, set[str]] = {}
    for path, whole in zip(kept, paths, strict=True):
        assert [name for name in whole if name in path] == list(path), "in their order"
        for parent, child in pairwise(path):
            children.setdefault(parent, set()).add(child)
    assert all(len(below) > 1 for below in children.values())
    if len(paths) > 1:
        assert len({path[0] for path in kept}) > 1, "no root above all"


def test_a_class_above_another_is_repeated_to_the_end() -> None:
    assert pad([("dog",), ("dog", "terrier", "Airedale")]) == [("dog", "dog", "dog"), ("dog", "terrier", "Airedale")]
