"""The tree as integers: what a learner keeps of a taxonomy, for checkpoints and for copies that predict."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dhocl.core.devices import Device
from dhocl.core.taxonomy import UNKNOWN, Taxonomy


class TreeTable:
    """A taxonomy at one moment: nodes, columns and ancestors, without names.

    Args:
        levels: observed levels, coarsest first.
        node_levels: (nodes,) level of each node.
        paths: (nodes, levels) as in `Taxonomy.paths`.

    >>> from dhocl.core.taxonomy import Label
    >>> tree = Taxonomy()
    >>> tree.link(tree.add(Label("robin", 1)), tree.add(Label("bird", 0)))
    >>> tree.add(Label("pike", 1))
    2
    >>> table = TreeTable.of(tree)
    >>> table.width(1), table.ancestors(1, 0).tolist(), table.leaves.tolist()
    (2, [0, -1], [[0, 0], [-1, 1]])
    """

    def __init__(self, levels: list[int], node_levels: Tensor, paths: Tensor) -> None:
        self.levels = levels
        self.node_levels = node_levels
        self.paths = paths

    @classmethod
    def of(cls, taxonomy: Taxonomy, device: Device = "cpu") -> TreeTable:
        def make() -> TreeTable:
            node_levels = torch.tensor([label.level for label in taxonomy.labels], dtype=torch.long, device=device)
            return cls(list(taxonomy.levels), node_levels, taxonomy.paths.to(device, copy=True))

        return taxonomy.derived(f"table on {device}", make)

    @classmethod
    def empty(cls, device: Device = "cpu") -> TreeTable:
        none = torch.zeros(0, dtype=torch.long, device=device)
        return cls([], none, none.view(0, 0))

    @classmethod
    def from_state(cls, state: dict[str, Any], device: Device = "cpu") -> TreeTable:
        """From what `state_dict` returned; other entries are ignored."""
        return cls(list(state["levels"]), *(state[name].to(device, copy=True) for name in ("node_levels", "paths")))

    def __len__(self) -> int:
        """Number of nodes, synonyms included."""
        return len(self.node_levels)

    def nodes(self, level: int) -> Tensor:
        """(classes,) nodes of a level, by column."""
        return (self.node_levels == level).nonzero()[:, 0]

    def width(self, level: int) -> int:
        """Number of columns of a level, synonyms included."""
        return int((self.node_levels == level).sum())

    def columns(self, y: Tensor, level: int) -> Tensor:
        """(B,) nodes -> (B,) columns of their classes at a level, -1 where unknown."""
        return self.paths[y, self.levels.index(level)]

    def ancestors(self, level: int, at: int) -> Tensor:
        """(classes of `level`,) column of the ancestor at level `at`, -1 where unknown; of a synonym the accepted."""
        return self.columns(self.nodes(level), at)

    @cached_property
    def is_leaf(self) -> Tensor:
        """(nodes,) whether a node is a class without a known child; not so for synonyms."""
        found = torch.zeros_like(self.node_levels, dtype=torch.bool)
        for place, level in enumerate(self.levels):
            nodes = self.nodes(level)
            finer = self.paths[self.node_levels > level, place]
            is_parent = torch.zeros_like(nodes, dtype=torch.bool)
            is_parent[finer[finer != UNKNOWN]] = True
            accepted = self.paths[nodes, place] == torch.arange(len(nodes), device=nodes.device)
            found[nodes] = accepted & ~is_parent
        return found

    @cached_property
    def leaves(self) -> Tensor:
        """(paths, levels) columns of every class without a known child and of its ancestors, -1 where unknown."""
        return self.paths[self.is_leaf]

    @cached_property
    def parents(self) -> Tensor:
        """(nodes,) node of the parent, -1 where unknown; for a synonym that of the accepted class."""
        found = torch.full_like(self.node_levels, UNKNOWN)
        for place, level in enumerate(self.levels):  # a finer level overrides
            nodes, columns = self.nodes(level), self.paths[:, place]
            above = (columns != UNKNOWN) & (self.node_levels > level)
            found[above] = nodes[columns[above]]
        return found

    def without(self, links: dict[int, int]) -> TreeTable:
        """The same tree without these links, node -> parent. Those that are not there have no effect."""
        paths = self.paths.clone()
        for node, parent in links.items():
            if node < len(self) and self.parents[node] == parent:
                place = self.levels.index(int(self.node_levels[node]))
                below = self.paths[:, place] == self.paths[node, place]
                paths[below, :place] = UNKNOWN
        return TreeTable(self.levels, self.node_levels, paths)

    def state_dict(self) -> dict[str, Any]:
        return {"levels": self.levels, "node_levels": self.node_levels, "paths": self.paths}
