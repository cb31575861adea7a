"""Grows the taxonomy from the labels that arrive."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dhocl.knowledge.source import Corrupted, KnowledgeSource, Link
from dhocl.taxonomy import UNKNOWN, Label, Taxonomy


class Curator:
    """Adds new classes at once, asks about them, and applies the answers `delay` batches later.

    A class that arrives in batch t is an unanchored node in batches t ... t+delay-1 and linked from t+delay on.
    With an infinite delay nothing is ever asked.

    An empty answer means "not yet". With `ask_again` the class is asked about once more 1, 2, 4, 8, ... batches after
    the first time, until there is an answer: about log2(n) questions a class in n batches. What comes so late may be
    about fewer classes than are known by now, so it never replaces a parent by one that is not of a finer level. A
    source that answers from the true tree need not be asked again, since a class is told of when its relatives arrive.
    """

    def __init__(
        self, source: KnowledgeSource, delay: float = 1, taxonomy: Taxonomy | None = None, ask_again: bool = False
    ) -> None:
        if not delay >= 0:
            raise ValueError(f"delay must be 0 or more batches, not {delay}")
        self.source = source
        self.delay = delay
        self.ask_again = ask_again
        self.taxonomy = Taxonomy() if taxonomy is None else taxonomy
        self.step = self.taxonomy.time
        self.pending: deque[tuple[int, list[Link]]] = deque()  # (batch from which the links are usable, links)
        self.waiting: dict[int, tuple[int, int]] = {}  # class without an answer -> batch it was first asked, is next

    def observe(self, labels: Sequence[Label]) -> Tensor:
        """(B,) node ids of a batch's labels, after growing the tree by its new classes and the answers now due."""
        self.step += 1
        tree = self.taxonomy
        tree.time = self.step
        for label in labels:
            if label not in tree:
                node = tree.add(label)
                if self.delay < math.inf:
                    self._ask(node, self.step)
        for node, (first, due) in list(self.waiting.items()):
            if tree.accepted(node) != node:
                self.settle(node)
            elif due <= self.step:
                self._ask(node, first)
        while self.pending and self.pending[0][0] <= self.step:
            for child, parent in self.pending.popleft()[1]:
                tree.link(tree.id(child), tree.id(parent))
        return torch.tensor([tree.id(label) for label in labels], dtype=torch.long)

    def settle(self, node: int) -> None:
        """A class need not be asked about any more: somebody has told of it."""
        self.waiting.pop(node, None)

    def _ask(self, node: int, first: int) -> None:
        if links := self.source.query(self.taxonomy.labels[node], self.taxonomy):
            usable = links if first == self.step else [link for link in links if self._nearer(*link)]
            self.pending.append((self.step + int(self.delay), usable))
            self.settle(node)
        elif self.ask_again:
            self.waiting[node] = (first, self.step + max(1, self.step - first))

    def _nearer(self, child: Label, parent: Label) -> bool:
        """The child has no parent of a level as fine as this one's."""
        present = self.taxonomy.parent(self.taxonomy.id(child))
        return present == UNKNOWN or self.taxonomy.labels[present].level < parent.level

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "step": self.step,
            "taxonomy": self.taxonomy.dumps(),
            "pending": [[due, [[*child, *parent] for child, parent in links]] for due, links in self.pending],
            "waiting": [[node, first, due] for node, (first, due) in self.waiting.items()],
        }
        if isinstance(self.source, Corrupted):
            state["source"] = self.source.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self.taxonomy = Taxonomy.loads(state["taxonomy"])
        self.pending = deque(
            (due, [(Label(c, i), Label(p, j)) for c, i, p, j in links]) for due, links in state["pending"]
        )
        self.waiting = {node: (first, due) for node, first, due in state.get("waiting", [])}  # older ones have none
        if isinstance(self.source, Corrupted):
            self.source.load_state_dict(state["source"])
