"""Queries about classes, with retries."""

from __future__ import annotations

import logging
import math
from typing import Any

from dhocl.core.taxonomy import Taxonomy
from dhocl.knowledge.source import KnowledgeSource, Statement, is_final


class Asker:
    """Queries a source about classes. Classes without a parent one level above are retried with exponential back-off.

    Retries are 1, 2, 4, 8, ... units of time after the first query: at most log2(n) of them in n units. The caller
    counts the time: a curator in batches, the service in seconds. Without `retry` a class is queried once, which is
    enough for a source that has the whole tree.
    """

    def __init__(self, source: KnowledgeSource, retry: bool = True, longest: float = math.inf) -> None:
        self.source = source
        self.retry = retry
        self.longest = longest  # longest time between two queries about a class
        self.waiting: dict[int, tuple[float, float]] = {}  # node -> time of the first query, of the next one

    def ask(self, node: int, tree: Taxonomy, now: float) -> list[Statement]:
        """Query the source about a class. With `retry`, an error of the source is logged and the query retried."""
        label = tree.labels[node]
        try:
            answer = list(self.source.query(label, tree))
        except Exception as problem:  # a source must not stop the learner
            if not self.retry:
                raise
            logging.getLogger(__name__).warning("no answer about %s: %s", label, problem)
            answer = []
        if self.retry and not is_final(answer, label.level):
            first, _ = self.waiting.get(node, (now, now))
            self.waiting[node] = (first, now + min(self.longest, max(1, now - first)))
        else:
            self.drop(node)
        return answer

    def due(self, tree: Taxonomy, now: float) -> list[int]:
        """Classes to query again now. Classes that were merged into another are dropped."""
        for node in [node for node in self.waiting if tree.accepted(node) != node]:
            del self.waiting[node]
        return [node for node, (_, due) in self.waiting.items() if due <= now]

    def drop(self, node: int) -> None:
        """Stop retries of a class."""
        self.waiting.pop(node, None)

    def close(self) -> None:
        """Close the source, if it can be closed."""
        if close := getattr(self.source, "close", None):
            close()

    def state_dict(self) -> dict[str, Any]:
        return {"waiting": [[node, first, due] for node, (first, due) in self.waiting.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.waiting = {node: (first, due) for node, first, due in state["waiting"]}
