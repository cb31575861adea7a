"""The taxonomy: a tree of classes that grows.

A node is an integer, in order of arrival. A node also has a *column*: its index in the head of its level. Columns are
appended and never move, so the logits of an old head are a prefix of those of the new head.

>>> tree = Taxonomy()
>>> bird, robin = tree.add(Label("bird", 0)), tree.add(Label("robin", 2))
>>> tree.complete(torch.tensor([robin])).tolist()     # levels 0 and 2 are known, robin is not linked yet
[[-1, 0]]
>>> tree.link(robin, bird)
>>> tree.complete(torch.tensor([robin])).tolist()
[[0, 0]]

A renamed class keeps its node, and both names find it. A merged class becomes a *synonym*: its node and its name now
refer to the class it was merged into, its *accepted* class. Its column remains, but no label maps to it any more.
`decode.merge_synonyms` adds its probability to that of the accepted class.

>>> blackbird = tree.add(Label("blackbird", 2))
>>> tree.merge(blackbird, robin)
>>> tree.complete(torch.tensor([blackbird])).tolist(), tree.nodes(2).tolist(), tree.ancestors(2, 2).tolist()
([[0, 0]], [1, 2], [0, 0])
"""

from __future__ import annotations

import copy
from array import array
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from dhocl.core.events import UNKNOWN, Event, EventLog, Label

__all__ = ["UNKNOWN", "Event", "Label", "Taxonomy"]

T = TypeVar("T")


def _view(numbers: array[int]) -> np.ndarray:
    """A view without a copy. Do not keep it: an array with a live view can not grow."""
    return np.frombuffer(numbers, np.int64)


class Taxonomy:
    """A tree of classes on numbered levels, 0 the coarsest. Node ids and columns never change.

    Example:
        >>> tree = Taxonomy()
        >>> tree.link(tree.add(Label("robin", 1)), tree.add(Label("bird", 0)))
        >>> tree
        Taxonomy(2 classes on 2 levels, 0 unanchored)
        >>> [tree.labels[node].name for node in tree.lineage(tree.id(Label("robin", 1)))]
        ['robin', 'bird']
    """

    def __init__(self) -> None:
        self.labels: list[Label] = []  # by node id, synonyms included
        self.levels: list[int] = []  # observed, coarsest first
        self.events = EventLog()
        self.time = 0  # of the events that follow; set by the caller
        self._ids: dict[Label, int] = {}  # of all names, old ones included
        self._accepted = array("q")  # by node id: itself, or what it was merged into
        self._synonyms: dict[int, list[int]] = {}
        self._parent = array("q")  # by node id, as are the next two
        self._column = array("q")
        self._level = array("q")
        self._children: dict[int, set[int]] = {}
        self._nodes: dict[int, array[int]] = {}  # level -> node ids by column
        self._paths = np.full((16, 0), UNKNOWN, dtype=np.int64)
        self._stale: set[int] = set()  # nodes whose rows of _paths, and those of their descendants, are out of date
        self._derived: dict[str, tuple[int, Any]] = {}  # name -> version, value

    # -- reading ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of nodes, synonyms included."""
        return len(self.labels)

    def __repr__(self) -> str:
        classes, levels = len(list(self)), len(self.levels)
        return f"Taxonomy({classes} classes on {levels} levels, {len(self.unanchored)} unanchored)"

    def __contains__(self, label: object) -> bool:
        """Whether a class has or had this name."""
        return label in self._ids

    def __iter__(self) -> Iterator[Label]:
        """The classes by their current names, without synonyms."""
        return (label for node, label in enumerate(self.labels) if self._accepted[node] == node)

    def other_names(self) -> Iterator[tuple[Label, Label]]:
        """(name, current name) for each former name and each synonym."""
        named = ((name, self.labels[self._accepted[node]]) for name, node in self._ids.items())
        return ((name, label) for name, label in named if name != label)

    @property
    def version(self) -> int:
        """Changes whenever the tree does: a key for caches."""
        return len(self.events)

    def derived(self, name: str, make: Callable[[], T]) -> T:
        """A value computed from the tree, cached until the tree changes."""
        version, value = self._derived.get(name, (None, None))
        if version != self.version:
            value = make()
            self._derived[name] = (self.version, value)
        return value  # type: ignore[return-value]

    @property
    def widths(self) -> dict[int, int]:
        """Number of columns per observed level: its classes, synonyms included."""
        return {level: len(self._nodes[level]) for level in self.levels}

    @property
    def sizes(self) -> dict[int, int]:
        """Number of classes per observed level, without synonyms."""
        merged = Counter(self.labels[node].level for nodes in self._synonyms.values() for node in nodes)
        return {level: width - merged[level] for level, width in self.widths.items()}

    def id(self, label: Label) -> int:
        try:
            return self._accepted[self._ids[label]]
        except KeyError:
            raise KeyError(f"{label} is not in the taxonomy") from None

    def accepted(self, node: int) -> int:
        """The node itself, or the class it was merged into."""
        return self._known(node)

    def resolve(self, y: Tensor) -> Tensor:
        """(B,) node ids -> (B,) node ids with synonyms replaced by their accepted classes."""
        return torch.from_numpy(_view(self._accepted)[y.numpy()]) if self.merges else y

    @property
    def merges(self) -> int:
        """Number of synonyms. Their columns are no longer used."""
        return sum(map(len, self._synonyms.values()))

    def column(self, node: int) -> int:
        """Index of a node in the head of its level."""
        return self._column[self._known(node)]

    def parent(self, node: int) -> int:
        return self._parent[self._known(node)]

    def children(self, node: int) -> list[int]:
        return sorted(self._children.get(self._known(node), ()))

    def lineage(self, node: int) -> list[int]:
        """The node and its known ancestors, finest first."""
        path = [self._known(node)]
        while (parent := self._parent[path[-1]]) != UNKNOWN:
            path.append(parent)
        return path

    def descendants(self, node: int) -> list[int]:
        """All nodes below, in no particular order."""
        found, stack = [], list(self._children.get(self._known(node), ()))
        while stack:
            found.append(child := stack.pop())
            stack.extend(self._children.get(child, ()))
        return found

    @property
    def unanchored(self) -> list[int]:
        """Nodes outside the tree: no parent, no child, and not of the coarsest level."""
        return [
            node
            for node, label in enumerate(self.labels)
            if self._parent[node] == UNKNOWN
            and self._accepted[node] == node
            and label.level != self.levels[0]
            and not self._children.get(node)
        ]

    def nodes(self, level: int) -> Tensor:
        """(classes,) node ids of a level, by column, synonyms included."""
        return torch.from_numpy(_view(self._nodes[level]).copy())

    @property
    def paths(self) -> Tensor:
        """(nodes, levels) column of each node's ancestor (or itself) at each observed level, -1 where unknown."""
        self._refresh()
        return torch.from_numpy(self._paths[: len(self.labels)])

    def complete(self, y: Tensor) -> Tensor:
        """(B,) node ids -> (B, levels) columns: each label with its known ancestors, -1 where unknown."""
        return self.paths[y]

    def by_level(self, y: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Group the labels (B,) of a batch by level: yields level, rows (n,) and their columns (n,)."""
        levels = torch.from_numpy(_view(self._level)[y.numpy()])
        for level in torch.unique(levels).tolist():
            rows = (levels == level).nonzero()[:, 0]
            yield level, rows, self.paths[y[rows], self.levels.index(level)]

    def ancestors(self, level: int, at: int) -> Tensor:
        """(classes of `level`,) column of the ancestor at level `at`, -1 where unknown."""
        return self.paths[self.nodes(level), self.levels.index(at)]

    def parents(self, level: int) -> Tensor:
        """(classes of `level`,) column of the ancestor at the next coarser observed level, -1 where unknown."""
        place = self.levels.index(level)
        if place == 0:
            return torch.full((len(self._nodes[level]),), UNKNOWN)
        return self.ancestors(level, self.levels[place - 1])

    def parent_nodes(self, level: int) -> Tensor:
        """(classes of `level`,) node of the parent, at any level, -1 where unknown."""
        return torch.from_numpy(_view(self._parent)[_view(self._accepted)[_view(self._nodes[level])]])

    def distances(self, level: int, columns: Tensor | None = None) -> Tensor:
        """(C, C) height of the lowest common ancestor of each pair of classes of a level, in observed levels.

        0 on the diagonal, 1 for siblings. Classes without a known common ancestor meet at a virtual root above level 0.
        With `columns` (n,) only those rows: (n, C).
        """
        place = self.levels.index(level)
        paths = self.paths[self.nodes(level)]
        own = paths if columns is None else paths[columns.cpu()]
        height = torch.full((len(own), len(paths)), place + 1)
        for step in range(place + 1):  # coarse to fine: a finer common ancestor overrides
            shared = (own[:, step, None] == paths[None, :, step]) & (own[:, step, None] != UNKNOWN)
            height[shared] = place - step
        return height

    def copy(self) -> Taxonomy:
        """An independent copy. Much faster than `replay`."""
        self._refresh()
        twin = Taxonomy()
        twin.time = self.time
        for name in ("labels", "levels", "events", "_ids", "_accepted", "_parent", "_column", "_level", "_paths"):
            setattr(twin, name, copy.copy(getattr(self, name)))
        for name in ("_synonyms", "_children", "_nodes"):
            setattr(twin, name, {key: copy.copy(value) for key, value in getattr(self, name).items()})
        return twin

    # -- changing ---------------------------------------------------------------------------------------------

    def add(self, label: Label) -> int:
        """The node of a label; a new, unanchored one if the label is not known."""
        if (known := self._ids.get(label)) is not None:
            return self._accepted[known]
        node = len(self.labels)
        if label.level not in self._nodes:
            self._add_level(label.level)
        same_level = self._nodes[label.level]
        self.labels.append(label)
        self._ids[label] = node
        self._accepted.append(node)
        self._parent.append(UNKNOWN)
        self._column.append(len(same_level))
        self._level.append(label.level)
        same_level.append(node)
        self._stale.add(node)
        self.events.note(self.time, "add", node, label=label)
        return node

    def link(self, child: int, parent: int) -> None:
        """Set or replace the parent of a node."""
        child, parent = self._known(child), self._known(parent)
        if self._level[parent] >= self._level[child]:  # every cycle has such a link
            what = "makes a cycle" if child in self.lineage(parent) else "breaks the level order: a parent's is smaller"
            raise ValueError(f"linking {self.labels[child]} below {self.labels[parent]} {what}")
        if (old := self._parent[child]) == parent:
            return
        if old != UNKNOWN:
            self._children[old].discard(child)
        self._parent[child] = parent
        self._stale.add(child)
        if parent in self._children:
            self._children[parent].add(child)
        else:
            self._children[parent] = {child}
        self.events.note(self.time, "link", child, parent)

    def unlink(self, child: int) -> None:
        """Remove the link of a node to its parent, if it has one."""
        child = self._known(child)
        if (old := self._parent[child]) != UNKNOWN:
            self._children[old].discard(child)
            self._parent[child] = UNKNOWN
            self._stale.add(child)
            self.events.note(self.time, "unlink", child)

    def rename(self, node: int, label: Label) -> None:
        """Give a class another name. The old name still finds it."""
        node = self._known(node)
        old = self.labels[node]
        if label.level != old.level:
            raise ValueError(f"{old} can not become {label}: a class stays on its level")
        if label in self and self.id(label) != node:
            raise ValueError(f"{old} can not become {label}, which is another class: merge the two")
        if label != old:
            self.labels[node] = label
            self._ids.setdefault(label, node)
            self.events.note(self.time, "rename", node, label=label)

    def merge(self, node: int, into: int) -> None:
        """Make `node` a synonym of `into`, a class of the same level.

        `into` takes over the children, and the parent if it has none. Each moved link is a separate event.
        """
        node, into = self._known(node), self._known(into)
        if self.labels[node].level != self.labels[into].level:
            raise ValueError(f"{self.labels[node]} and {self.labels[into]} can not be one: their levels differ")
        if node == into:
            return
        for child in self.children(node):
            self.link(child, into)
        if (parent := self._parent[node]) != UNKNOWN:
            self.unlink(node)
            if self._parent[into] == UNKNOWN:
                self.link(into, parent)
        synonyms = [node, *self._synonyms.pop(node, [])]
        self._synonyms.setdefault(into, []).extend(synonyms)
        for synonym in synonyms:
            self._accepted[synonym] = into
        self._stale.update(synonyms)
        self.events.note(self.time, "merge", node, into=into)

    def _known(self, node: int) -> int:
        """The accepted class of a node; KeyError if there is no such node."""
        if not 0 <= node < len(self.labels):
            raise KeyError(f"node {node} is not in the taxonomy, which has {len(self.labels)} nodes")
        return self._accepted[node]

    def _add_level(self, level: int) -> None:
        insort(self.levels, level)
        self._nodes[level] = array("q")
        self._paths = np.insert(self._paths, self.levels.index(level), UNKNOWN, axis=1)

    def _refresh(self) -> None:
        """Recompute the stale rows of `_paths`, coarsest level first, because a row extends that of the parent."""
        if not self._stale:
            return
        if len(self.labels) > len(self._paths):
            rows = max(len(self.labels), 2 * len(self._paths))
            grown = np.full((rows, len(self.levels)), UNKNOWN, dtype=np.int64)
            grown[: len(self._paths)] = self._paths
            self._paths = grown
        nodes = np.fromiter(self._affected(), np.int64)
        levels = _view(self._level)[nodes]
        for place, level in enumerate(self.levels):
            changed = nodes[levels == level]
            accepted = _view(self._accepted)[changed]
            parents = _view(self._parent)[accepted]
            rows = self._paths[parents]
            rows[parents == UNKNOWN] = UNKNOWN
            rows[:, place] = _view(self._column)[accepted]
            self._paths[changed] = rows
        self._stale.clear()

    def _affected(self) -> set[int]:
        """Stale nodes with their descendants and synonyms."""
        affected = frontier = self._stale
        while frontier:
            below = set().union(*(self._children[node] for node in frontier & self._children.keys()))
            below.update(*(self._synonyms[node] for node in frontier & self._synonyms.keys()))
            frontier = below - affected
            affected = affected | frontier
        return affected

    # -- text -------------------------------------------------------------------------------------------------

    def dumps(self) -> str:
        """The event log, one JSON object per line. `loads` restores the same tree with the same ids."""
        return "".join(event.to_json() + "\n" for event in self.events)

    @classmethod
    def loads(cls, text: str) -> Taxonomy:
        return cls.replay(Event.from_json(line) for line in text.split("\n") if line)

    @classmethod
    def replay(cls, events: Iterable[Event]) -> Taxonomy:
        """The tree that results from these events."""
        tree = cls()
        for event in events:
            tree.time = event.time
            if event.kind == "link":
                tree.link(event.node, event.parent)
            elif event.kind == "unlink":
                tree.unlink(event.node)
            elif event.kind == "merge":
                tree.merge(event.node, event.into)
            elif event.kind == "rename" and event.label is not None:
                tree.rename(event.node, event.label)
            elif event.label is None or tree.add(event.label) != event.node:
                raise ValueError(f"event {event} does not follow from those before it")
        return tree
