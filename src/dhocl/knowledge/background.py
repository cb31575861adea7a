"""Query a slow source from a thread, so that the learner does not wait for it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from queue import SimpleQueue
from threading import Thread

from dhocl.core.taxonomy import Label
from dhocl.knowledge.source import KnowledgeSource, Statement


class Background:
    """Queries another source from a thread. A `Model` wraps slow sources in it.

    The first query of a class is queued and returns an empty answer. A later query returns the answer if it has
    arrived. If that was empty, the class is queued again with the classes known by then. So it needs a curator that
    retries. A source that hangs blocks later queries, but neither the learner nor the end of the process. Queries in
    progress at the end are lost; the next process repeats them.
    """

    def __init__(self, source: KnowledgeSource) -> None:
        self._source = source
        self._questions: SimpleQueue[tuple[Label, Collection[Label]] | None] = SimpleQueue()
        self._asked: set[Label] = set()
        self._answers: dict[Label, Sequence[Statement]] = {}  # filled by the thread
        self._closed = False
        Thread(target=self._work, daemon=True).start()

    def query(self, label: Label, known: Collection[Label]) -> Sequence[Statement]:
        if label in self._answers:
            self._asked.discard(label)
            if answer := self._answers.pop(label):
                return answer
        if label not in self._asked:
            self._asked.add(label)
            self._questions.put((label, dict.fromkeys(known).keys()))  # a copy, because `known` grows
        return []

    def close(self) -> None:
        """Stop without waiting: the thread ends after the query in progress."""
        self._closed = True
        self._questions.put(None)

    def _work(self) -> None:
        while (question := self._questions.get()) and not self._closed:
            label, known = question
            try:
                self._answers[label] = self._source.query(label, known)
            except Exception as problem:  # any error, so that the thread keeps running
                logging.getLogger(__name__).warning("no answer about %s: %s", label, problem)
                self._answers[label] = []
