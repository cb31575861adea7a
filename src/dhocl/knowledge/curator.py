"""Grows the taxonomy from the labels that arrive."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dhocl.knowledge.source import Corrupted, KnowledgeSource, Link
from dhocl.taxonomy import Label, Taxonomy


class Curator:
    """Adds new classes at once, asks about them, and applies the answers `delay` batches later.

    A class that arrives in batch t is an unanchored node in batches t ... t+delay-1 and linked from t+delay on.
    With an infinite delay nothing is ever asked.
    """

    def __init__(self, source: KnowledgeSource, delay: float = 1, taxonomy: Taxonomy | None = None) -> None:
        if not delay >= 0:
            raise ValueError(f"delay must be 0 or more batches, not {delay}")
        self.source = source
        self.delay = delay
        self.taxonomy = Taxonomy() if taxonomy is None else taxonomy
        self.step = self.taxonomy.time
        self.pending: deque[tuple[int, list[Link]]] = deque()  # (batch from which the links are usable, links)

    def observe(self, labels: Sequence[Label]) -> Tensor:
        """(B,) node ids of a batch's labels, after growing the tree by its new classes and the answers now due."""
        self.step += 1
        tree = self.taxonomy
        tree.time = self.step
        for label in labels:
            if label not in tree:
                tree.add(label)
                if self.delay < math.inf:
                    self.pending.append((self.step + int(self.delay), self.source.query(label, tree)))
        while self.pending and self.pending[0][0] <= self.step:
            for child, parent in self.pending.popleft()[1]:
                tree.link(tree.id(child), tree.id(parent))
        return torch.tensor([tree.id(label) for label in labels], dtype=torch.long)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "step": self.step,
            "taxonomy": self.taxonomy.dumps(),
            "pending": [[due, [[*child, *parent] for child, parent in links]] for due, links in self.pending],
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
        if isinstance(self.source, Corrupted):
            self.source.load_state_dict(state["source"])
