"""Grows the taxonomy from the labels that arrive."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from dhocl.knowledge.source import Corrupted, KnowledgeSource, Statement, Synonym, from_json, to_json
from dhocl.taxonomy import UNKNOWN, Label, Taxonomy


class Curator:
    """Adds new classes at once, asks about them, and applies the answers `delay` batches later.

    A class that arrives in batch t is an unanchored node in batches t ... t+delay-1 and linked from t+delay on.
    With an infinite delay nothing is ever asked.

    An answer without a link means "not yet". With `ask_again` the class is asked about once more 1, 2, 4, 8, ...
    batches after the first time, until it has been told a parent of the level just above: at most log2(n) questions in
    n batches. So a source need not know more than the parent of a class. One that answers from the true tree need not
    be asked again, since it tells of a class when its relatives arrive.

    An answer may come from a time when less was known, so no link moves a class to a parent of a coarser level. What
    can not be is refused and logged: a source must not stop the learner.
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
        self.pending: deque[tuple[int, list[Statement]]] = deque()  # (batch from which they are usable, what was said)
        self.waiting: dict[int, tuple[int, int]] = {}  # class without an answer -> batch it was first asked, is next
        self.settled: set[int] = set()  # classes placed by hand

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
                del self.waiting[node]
            elif due <= self.step:
                self._ask(node, first)
        while self.pending and self.pending[0][0] <= self.step:
            self.hear(self.pending.popleft()[1])
        return torch.tensor([tree.id(label) for label in labels], dtype=torch.long)

    def settle(self, node: int) -> None:
        """Somebody has told of a class: it is not asked about any more, and no source moves it."""
        self.waiting.pop(node, None)
        self.settled.add(node)

    def hear(self, answer: Iterable[Statement]) -> None:
        """Apply what a source says."""
        for said in answer:
            self._apply(said)

    def _ask(self, node: int, first: int) -> None:
        label = self.taxonomy.labels[node]
        answer = list(self.source.query(label, self.taxonomy))
        if answer:
            self.pending.append((self.step + int(self.delay), answer))
        if self.ask_again and not self._final(answer, label.level):
            self.waiting[node] = (first, self.step + max(1, self.step - first))
        else:
            self.waiting.pop(node, None)

    @staticmethod
    def _final(answer: Sequence[Statement], level: int) -> bool:
        """Nothing is left to ask of a class of this level: it has a parent just above, or can have none."""
        links = [said for said in answer if not isinstance(said, Synonym)]
        return any(level == 0 or (child.level == level and parent.level == level - 1) for child, parent in links)

    def _apply(self, said: Statement) -> None:
        tree, (name, other) = self.taxonomy, said
        try:
            if not isinstance(said, Synonym):
                self._link(name, other)
            elif other in tree:
                tree.merge(tree.id(name), tree.id(other))
            else:
                tree.rename(tree.id(name), other)
        except (KeyError, ValueError) as problem:
            logging.getLogger(__name__).warning("an answer is refused: %s", problem.args[0])

    def _link(self, child: Label, parent: Label) -> None:
        tree, above = self.taxonomy, self.taxonomy.id(parent)
        if child not in tree and child.level <= parent.level:
            raise ValueError(f"the new class {child} can not lie below {parent}")
        node = tree.add(child)
        present = tree.parent(node)
        if node not in self.settled and (present == UNKNOWN or tree.labels[present].level <= parent.level):
            tree.link(node, above)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "step": self.step,
            "taxonomy": self.taxonomy.dumps(),
            "pending": [[due, [to_json(said) for said in answer]] for due, answer in self.pending],
            "waiting": [[node, first, due] for node, (first, due) in self.waiting.items()],
            "settled": sorted(self.settled),
        }
        if isinstance(self.source, Corrupted):
            state["source"] = self.source.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self.taxonomy = Taxonomy.loads(state["taxonomy"])
        self.taxonomy.time = self.step  # which may be later than the last event
        self.pending = deque((due, [from_json(said) for said in answer]) for due, answer in state["pending"])
        self.waiting = {node: (first, due) for node, first, due in state.get("waiting", [])}  # older ones have none
        self.settled = set(state.get("settled", []))
        if isinstance(self.source, Corrupted):
            self.source.load_state_dict(state["source"])
