"""Asks a knowledge source about new classes, beside the learner: a slow source delays the tree and nothing else."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event, Thread

from dhocl.knowledge import KnowledgeSource, Statement, Synonym
from dhocl.knowledge.source import is_final
from dhocl.taxonomy import UNKNOWN, Taxonomy

PAUSE = 0.5  # seconds between looks at the tree
LONGEST = 3600.0  # seconds until a class without an answer is asked about again


class Asker:
    """A class is asked about when it comes, and 1, 2, 4, 8, ... seconds after that until it has a parent just above.

    What the source says goes to `hear`, without what the tree knows already. Classes that have their place when they
    are first seen are not asked about: a tree file has told of them, or an answer before a restart.
    """

    def __init__(
        self, source: KnowledgeSource, tree: Callable[[], Taxonomy], hear: Callable[[list[Statement]], None]
    ) -> None:
        self._source = source
        self._tree = tree
        self._hear = hear
        self._met = 0  # nodes seen so far
        self._waiting: dict[int, tuple[float, float]] = {}  # node -> when it was first asked about, is next
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="asker", daemon=True)  # a source may hang

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask no more. What is under way is not waited for; the class is asked about again after a restart."""
        self._stopping.set()
        if close := getattr(self._source, "close", None):
            close()

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE):
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Ask about whatever is due."""
        tree = self._tree()
        for node in range(self._met, len(tree)):
            if not _placed(node, tree):
                self._waiting[node] = (now, now)
        self._met = len(tree)
        for node, (first, due) in list(self._waiting.items()):
            if tree.accepted(node) != node:
                del self._waiting[node]
            elif due <= now and not self._stopping.is_set():
                self._ask(node, tree, first, now)

    def _ask(self, node: int, tree: Taxonomy, first: float, now: float) -> None:
        try:
            answer = list(self._source.query(tree.labels[node], tree))
            if news := [said for said in answer if not _known(said, tree)]:
                self._hear(news)
        except Exception as problem:  # of any kind: the thread must live on
            logging.getLogger(__name__).warning("no answer about %s: %s", tree.labels[node], problem)
            answer = []
        if is_final(answer, tree.labels[node].level):
            del self._waiting[node]
        else:
            self._waiting[node] = (first, now + min(LONGEST, max(1.0, now - first)))


def _placed(node: int, tree: Taxonomy) -> bool:
    level, parent = tree.labels[node].level, tree.parent(node)
    return bool(tree.children(node)) if level == 0 else parent != UNKNOWN and tree.labels[parent].level == level - 1


def _known(said: Statement, tree: Taxonomy) -> bool:
    a, b = said
    if a not in tree or b not in tree:
        return False
    return tree.id(a) == tree.id(b) if isinstance(said, Synonym) else tree.parent(tree.id(a)) == tree.id(b)
