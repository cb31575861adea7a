"""Trees for the tests."""

from __future__ import annotations

from hypothesis import strategies as st

from dhocl.core.taxonomy import Label, Taxonomy


def balanced_tree(*branching: int) -> Taxonomy:
    """A complete tree: branching (2, 3) gives 2 roots with 3 children each."""
    tree = Taxonomy()
    above: list[int] = []
    for level, width in enumerate(branching):
        layer = []
        for parent in above or [None]:
            for place in range(width):
                stem = "" if parent is None else tree.labels[parent].name + "."
                layer.append(node := tree.add(Label(f"{stem}{place}", level)))
                if parent is not None:
                    tree.link(node, parent)
        above = layer
    return tree


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """A history of a taxonomy: adds at any level, links, unlinks, renames and merges, some of them refused."""
    kinds = st.sampled_from(["add", "add", "add", "link", "link", "link", "link", "unlink", "rename", "merge"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 30), st.integers(0, 30)), max_size=60))


def apply(history: list[tuple[str, int, int]]) -> Taxonomy:
    tree = Taxonomy()
    for time, change in enumerate(history):
        tree.time = time
        apply_one(tree, *change)
    return tree


def apply_one(tree: Taxonomy, kind: str, a: int, b: int) -> None:
    if kind == "add" or len(tree) == 0:
        tree.add(Label(f"c{a}", b % 5))
    elif kind == "link":
        child, parent = a % len(tree), b % len(tree)
        if tree.labels[parent].level < tree.labels[child].level:
            tree.link(child, parent)
    elif kind == "rename":
        node, name = a % len(tree), Label(f"c{b}", tree.labels[a % len(tree)].level)
        if name not in tree:
            tree.rename(node, name)
    elif kind == "merge":
        node, into = a % len(tree), b % len(tree)
        if tree.labels[into].level == tree.labels[node].level:
            tree.merge(node, into)
    else:
        tree.unlink(a % len(tree))


def completed_by_hand(tree: Taxonomy, node: int) -> list[int]:
    """The definition: walk up, note the column at each level."""
    row = [-1] * len(tree.levels)
    for ancestor in tree.lineage(node):
        row[tree.levels.index(tree.labels[ancestor].level)] = tree.column(ancestor)
    return row
