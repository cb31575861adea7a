"""Waiting for threads in the tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from dhocl.core.taxonomy import Label
from dhocl.knowledge import Background, Curator, KnowledgeSource


def until(done: Callable[[], object]) -> None:
    """Threads take their time; a minute is more than they need."""
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.001)


def grows_in_the_background(source: KnowledgeSource, order: Sequence[Label], parents: dict[Label, Label]) -> None:
    """In time the tree has these links, though the curator never waits for the source."""
    background = Background(source)
    curator = Curator(background, delay=0, retry=True)
    for label in order:
        curator.observe([label])
    tree = curator.taxonomy

    def linked() -> bool:
        curator.observe([order[0]])
        links = {label: tree.parent(tree.id(label)) for label in tree}
        return {label: tree.labels[node] for label, node in links.items() if node != -1} == parents

    until(linked)
    background.close()
