"""Query a knowledge source from a thread of the service, so that a slow source does not delay learning."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread

from dhocl.core.taxonomy import UNKNOWN, Label, Taxonomy
from dhocl.knowledge import KnowledgeSource, Statement, Synonym
from dhocl.knowledge.asking import Asker

PAUSE = 0.5  # seconds between checks of the tree
LONGEST = 3600.0  # longest time in seconds between two queries about a class


class AskingThread:
    """Queries new classes and retries unplaced ones (see `Asker`; time in seconds). `answered` gets new statements.

    A class that is placed when it is first seen, by a tree file or before a restart, is not queried. `stop` does not
    wait for a query in progress; the class is queried again after a restart.
    """

    def __init__(
        self, source: KnowledgeSource, tree: Callable[[], Taxonomy], answered: Callable[[list[Statement]], None]
    ) -> None:
        self._asker = Asker(source, longest=LONGEST)
        self._tree = tree
        self._answered = answered
        self._met = 0  # nodes seen so far
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="asking", daemon=True)  # a source may hang

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._asker.close()

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE):
            self.poll(time.monotonic())

    def poll(self, now: float) -> None:
        """Query the classes that are new or due."""
        tree = self._tree()
        fresh = range(self._met, len(tree))
        new = [node for node in fresh if tree.accepted(node) == node and not _placed(node, tree)]
        self._met = len(tree)
        for node in [*new, *self._asker.due(tree, now)]:
            if self._stopping.is_set():
                return
            news = [statement for statement in self._asker.ask(node, tree, now) if not _known(statement, tree)]
            try:
                if news:
                    self._answered(news)
            except Exception as problem:  # such as a full disk: the thread must keep running
                logging.getLogger(__name__).warning("an answer could not be stored: %s", problem)
                self._asker.waiting[node] = (now, now + 1)


def within(answer: Sequence[Statement], tree: Taxonomy, most: int) -> list[Statement]:
    """The statements that keep the tree at `most` classes or less: a source may name children that are not known.

    >>> tree = Taxonomy()
    >>> bird, robin, wren = Label("bird", 0), Label("robin", 1), Label("wren", 1)
    >>> _ = tree.add(bird)
    >>> within([(robin, bird), (wren, bird)], tree, 2) == [(robin, bird)]
    True
    """
    new: set[Label] = set()
    kept = []
    for statement in answer:
        added = set() if isinstance(statement, Synonym) else {label for label in statement if label not in tree}
        if len(tree) + len(new | added) <= most:
            new |= added
            kept.append(statement)
    if left := len(answer) - len(kept):
        logging.getLogger(__name__).warning("%d links of a source are left out: --max-classes is reached", left)
    return kept


def _placed(node: int, tree: Taxonomy) -> bool:
    level, parent = tree.labels[node].level, tree.parent(node)
    return bool(tree.children(node)) if level == 0 else parent != UNKNOWN and tree.labels[parent].level == level - 1


def _known(statement: Statement, tree: Taxonomy) -> bool:
    a, b = statement
    if a not in tree or b not in tree:
        return False
    return tree.id(a) == tree.id(b) if isinstance(statement, Synonym) else tree.parent(tree.id(a)) == tree.id(b)
