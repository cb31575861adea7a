"""Read `tree.tsv`: a line for each node with its rank and its parent.

The order of the ranks may be given above the header (`# levels: order, family, species`). Otherwise it is derived from
the parents, which must determine it.
"""

from __future__ import annotations

from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.data import tabular
from dhocl.data.tabular import Row


def read_tree(file: Path) -> tuple[Taxonomy, tuple[str, ...]]:
    """The tree, and the names of its ranks, coarsest first."""
    sheet = tabular.read(file, "\t", ("child", "level", "parent"))
    ranks: dict[str, set[str]] = {}  # name -> ranks it occurs at
    for row in sheet.rows:
        ranks.setdefault(_filled(row, "child", file), set()).add(_filled(row, "level", file))
    levels = _stated(sheet.comments, file) or _derived(sheet.rows, ranks, file)
    _check_used(sheet.rows, levels, file)
    rank = {level: place for place, level in enumerate(levels)}
    tree = Taxonomy()
    for row in sorted(sheet.rows, key=lambda row: rank[row.cells["level"]]):  # parents come before their children
        label = Label(row.cells["child"], rank[row.cells["level"]])
        if label in tree:
            raise InputError(f"{file} line {row.line}: {_shown(row)} occurs twice; keep one line")
        node = tree.add(label)
        if row.cells["parent"]:
            tree.link(node, _parent(tree, row, label.level, file))
    return tree, levels


def _parent(tree: Taxonomy, row: Row, level: int, file: Path) -> int:
    """The node of that name at the nearest coarser rank, since padded trees repeat names at several ranks."""
    for coarser in range(level - 1, -1, -1):
        if (label := Label(row.cells["parent"], coarser)) in tree:
            return tree.id(label)
    raise _no_parent(row, file)


def _no_parent(row: Row, file: Path) -> InputError:
    return InputError(
        f"{file} line {row.line}: the parent {row.cells['parent']!r} of {_shown(row)} is not listed "
        "at a coarser level; add a line for it"
    )


def _shown(row: Row) -> str:
    return f"{row.cells['child']!r} ({row.cells['level']})"


def _filled(row: Row, column: str, file: Path) -> str:
    if not row.cells[column]:
        raise InputError(f"{file} line {row.line}: the {column} is empty; fill it in or delete the line")
    return row.cells[column]


def _stated(comments: tuple[str, ...], file: Path) -> tuple[str, ...]:
    for comment in comments:
        key, colon, names = comment.lstrip("# ").partition(":")
        if colon and key.strip().lower() == "levels":
            levels = tuple(name.strip() for name in names.split(","))
            if "" in levels or max(Counter(levels).values()) > 1:
                raise InputError(f"{file}: '# levels:' must list each rank once, coarsest first, with commas")
            return levels
    return ()


def _derived(rows: list[Row], ranks: dict[str, set[str]], file: Path) -> tuple[str, ...]:
    """The order in which each parent is coarser than its child. Names at several ranks are ignored."""
    coarser: dict[str, set[str]] = {level: set() for levels in ranks.values() for level in levels}
    for row in rows:
        if parent := row.cells["parent"]:
            above = ranks.get(parent, set()) - {row.cells["level"]}
            if not above:
                raise _no_parent(row, file)
            if len(above) == 1:
                coarser[row.cells["level"]] |= above
    order: list[str] = []
    sorter = TopologicalSorter(coarser)
    try:
        sorter.prepare()
        while sorter.is_active():
            (level,) = sorter.get_ready()
            order.append(level)
            sorter.done(level)
    except (CycleError, ValueError):  # a cycle, or an order that is not unique
        raise InputError(
            f"{file}: the parents do not determine the order of the levels {', '.join(sorted(coarser))}; "
            "give it above the header: '# levels: coarsest, ..., finest'"
        ) from None
    return tuple(order)


def _check_used(rows: list[Row], levels: tuple[str, ...], file: Path) -> None:
    for row in rows:
        if row.cells["level"] not in levels:
            raise InputError(
                f"{file} line {row.line}: unknown level {row.cells['level']!r}; known are {', '.join(levels)}"
            )
    if unused := set(levels) - {row.cells["level"] for row in rows}:
        raise InputError(f"{file}: no line has the level {min(unused)!r}; remove it from '# levels:'")
