"""Grows the taxonomy from the labels that arrive."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from dhocl.core.taxonomy import UNKNOWN, Label, Taxonomy
from dhocl.knowledge.asking import Asker
from dhocl.knowledge.source import Corrupted, KnowledgeSource, Statement, Synonym, from_json, to_json


class Curator:
    """Adds new classes to the tree at once, queries a source about them, and applies the answers `delay` batches later.

    Args:
        source: the knowledge source to query.
        delay: batches between the query and the use of its answer. A class that arrives in batch t is unanchored in
            batches t ... t+delay-1 and linked from t+delay on. With an infinite delay nothing is queried.
        taxonomy: the tree to start from; None for an empty one.
        retry: query unplaced classes again (see `Asker`; time is counted in batches). A source then needs to know no
            more than the parent of a class.

    Answers may be outdated when they are applied, so a link never moves a class to a parent of a coarser level. A
    statement that contradicts the tree is refused and logged.

    Example:
        >>> from dhocl.knowledge import Curator, Oracle
        >>> true = Taxonomy()
        >>> true.link(true.add(Label("robin", 1)), true.add(Label("bird", 0)))
        >>> curator = Curator(Oracle(true), delay=0)
        >>> curator.observe([Label("bird", 0), Label("robin", 1), Label("robin", 1)])
        tensor([0, 1, 1])
        >>> curator.taxonomy.lineage(1)
        [1, 0]
    """

    def __init__(
        self, source: KnowledgeSource, delay: float = 1, taxonomy: Taxonomy | None = None, retry: bool = False
    ) -> None:
        if not delay >= 0:
            raise ValueError(f"delay must be 0 or more batches, not {delay}")
        self.asker = Asker(source, retry)
        self.delay = delay
        self.taxonomy = Taxonomy() if taxonomy is None else taxonomy
        self.step = self.taxonomy.time
        self.pending: deque[tuple[int, list[Statement]]] = deque()  # (batch in which to apply it, answer)
        self.settled: set[int] = set()  # classes placed by hand

    def observe(self, labels: Sequence[Label]) -> Tensor:
        """Add the new classes of a batch, and apply the answers that are due. Returns the nodes (B,) of the labels."""
        self.step += 1
        tree = self.taxonomy
        tree.time = self.step
        for label in labels:
            if label not in tree:
                node = tree.add(label)
                if self.delay < math.inf:
                    self._ask(node)
        for node in self.asker.due(tree, self.step):
            self._ask(node)
        while self.pending and self.pending[0][0] <= self.step:
            self.apply(self.pending.popleft()[1])
        return torch.tensor([tree.id(label) for label in labels], dtype=torch.long)

    def settle(self, node: int) -> None:
        """Mark a class as placed by hand: it is not queried again, and no source moves it."""
        self.asker.drop(node)
        self.settled.add(node)

    def apply(self, answer: Iterable[Statement]) -> None:
        """Apply the answer of a source. A statement that contradicts the tree is refused and logged."""
        for statement in answer:
            try:
                self._apply(statement)
            except (KeyError, ValueError) as problem:
                logging.getLogger(__name__).warning("refused an answer: %s", problem.args[0])

    def absorb(self, other: Curator, nodes: Sequence[int], taxonomy: Taxonomy) -> None:
        """Go on with a tree that has the classes of both; the nodes of `other` have become `nodes`."""
        later = self.step - other.step
        self.taxonomy = taxonomy
        answers = [*self.pending, *((due + later, answer) for due, answer in other.pending)]
        self.pending = deque(sorted(answers, key=lambda each: each[0]))
        self.settled |= {nodes[node] for node in other.settled}
        for node, (first, due) in other.asker.waiting.items():
            self.asker.waiting.setdefault(nodes[node], (first + later, due + later))

    def _ask(self, node: int) -> None:
        if answer := self.asker.ask(node, self.taxonomy, self.step):
            self.pending.append((self.step + int(self.delay), answer))

    def _apply(self, statement: Statement) -> None:
        tree, (name, other) = self.taxonomy, statement
        if not isinstance(statement, Synonym):
            self._link(name, other)
        elif other in tree:
            tree.merge(tree.id(name), tree.id(other))
        else:
            tree.rename(tree.id(name), other)

    def _link(self, child: Label, parent: Label) -> None:
        tree, above = self.taxonomy, self.taxonomy.id(parent)
        if child not in tree and child.level <= parent.level:
            raise ValueError(f"the new class {child} can not lie below {parent}")
        node = tree.add(child)
        present = tree.parent(node)
        if node not in self.settled and (present == UNKNOWN or tree.labels[present].level <= parent.level):
            tree.link(node, above)

    def state_dict(self) -> dict[str, Any]:
        source = self.asker.source
        return {
            "step": self.step,
            "taxonomy": self.taxonomy.dumps(),
            "pending": [[due, [to_json(statement) for statement in answer]] for due, answer in self.pending],
            "settled": sorted(self.settled),
            "asker": self.asker.state_dict(),
            "source": source.state_dict() if isinstance(source, Corrupted) else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self.taxonomy = Taxonomy.loads(state["taxonomy"])
        self.taxonomy.time = self.step  # may be later than the last event
        self.pending = deque((due, [from_json(fields) for fields in answer]) for due, answer in state["pending"])
        self.settled = set(state["settled"])
        self.asker.load_state_dict(state["asker"])
        if isinstance(self.asker.source, Corrupted):
            self.asker.source.load_state_dict(state["source"])
