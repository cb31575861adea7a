"""A slow source delays the tree, never the learner."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from queue import SimpleQueue
from threading import Thread

from dhocl.knowledge.source import KnowledgeSource, Statement
from dhocl.taxonomy import Label


class Background:
    """Asks another source from a thread of its own; to be used with a curator that asks again.

    The first question about a class is put aside and answered "not yet". When the class is asked about again and an
    answer is there, it is given; an empty one is dropped and the question put anew, with the classes known by then. A
    source that fails has no answer yet. One that hangs holds up the questions behind it, but neither the learner nor
    the end of the process. What is under way then is lost, and asked again by the next.
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
            self._questions.put((label, dict.fromkeys(known).keys()))  # a copy, for `known` goes on growing
        return []

    def close(self) -> None:
        """Ask no more. It waits for nothing: the thread ends after the question that is under way."""
        self._closed = True
        self._questions.put(None)

    def _work(self) -> None:
        while (question := self._questions.get()) and not self._closed:
            label, known = question
            try:
                self._answers[label] = self._source.query(label, known)
            except Exception as problem:  # of any kind: the thread must live on
                logging.getLogger(__name__).warning("no answer about %s: %s", label, problem)
                self._answers[label] = []
